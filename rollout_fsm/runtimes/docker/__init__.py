"""A box that is a container, over the command line of Docker or Podman."""

from rollout_fsm.runtimes.docker.box import DockerRuntime

__all__ = ["DockerRuntime"]

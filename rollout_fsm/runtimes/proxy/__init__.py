"""The proxy through which a box reaches what its network policies allow, and nothing else."""

from rollout_fsm.runtimes.proxy.proxy import NetworkProxy

__all__ = ["NetworkProxy"]

"""The engine of this machine, where there is one: nothing starts one."""

import shutil
import subprocess

import pytest

from rollout_fsm.runtimes.docker.box import IMAGE

ENGINE = next((program for program in ("docker", "podman") if shutil.which(program)), "docker")


def _why_not() -> str | None:
    """Why there are no real containers here."""
    if shutil.which(ENGINE) is None:
        return "neither docker nor podman is installed"
    for command in (["info"], ["image", "inspect", IMAGE]):
        try:
            asked = subprocess.run([ENGINE, *command], capture_output=True, text=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            return f"{ENGINE} {command[0]} does not answer"
        if asked.returncode:
            return f"{ENGINE} {command[0]} says: {asked.stderr.strip()[:200]}"
    return None


WHY_NOT = _why_not()
with_an_engine = pytest.mark.skipif(WHY_NOT is not None, reason=f"no real containers: {WHY_NOT}")

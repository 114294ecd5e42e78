"""Where figures were taken: the machine, and the versions of what was measured.

    PYTHON tests/benchmarks/surroundings.py DISTRIBUTION …

prints the versions that an interpreter has, null where it has none, as one JSON object. Standard library only: the
peer's runs it, too.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OURS = ("rollout-fsm", "trio", "transitions", "attrs")
PEERS = ("verifiers", "pydantic", "aiohttp")
VERIFIERS = "verifiers==0.3.1"
"""What `pip` installs to compare with."""


def machine() -> dict[str, str | int]:
    """The machine, and how busy others kept it at the start."""
    system = platform.system()
    with suppress(OSError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "os": system,
        "kernel": platform.release(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def versions(names: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of these distributions. Raises `PackageNotFoundError`."""
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def in_words(facts: Mapping[str, object]) -> str:
    """Facts as one line."""
    return ", ".join(f"{name} {fact}" for name, fact in facts.items())


def main(names: Sequence[str]) -> None:
    """The command."""
    found: dict[str, str | None] = {**versions(())}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

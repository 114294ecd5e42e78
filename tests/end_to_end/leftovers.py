"""What a run can leave behind, looked up without the project's own code: processes, temporary files, descriptors.

A process is a run's if it bears the test's mark in its environment, which everything started in a box inherits, or
works in the test's folder, which is so even where the environment was dropped.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

MARK = "ROLLOUT_FSM_BOX_END_TO_END_"
"""Prefix of the variable that marks a test's processes; a box hands on variables of this kind."""
DEAD = (b"Z", b"X")


@frozen(kw_only=True)
class Place:
    """Where one test's runs happen."""

    folder: Path
    """What TMPDIR names."""
    mark: str
    """Name of the variable that marks the test's processes."""

    def processes(self) -> list[str]:
        """The living processes of this test's runs, each as its id and its command line."""
        return [f"{pid} {_command_line(pid)}" for pid in _others() if self._is_ours(pid)]

    def files(self) -> list[str]:
        """What lies in the folder for temporary files."""
        return sorted(path.name for path in self.folder.iterdir())

    def _is_ours(self, pid: int) -> bool:
        marked = b"\0%b=" % self.mark.encode() in b"\0" + _read(pid, "environ")
        return _lives(pid) and (marked or _link(f"/proc/{pid}/cwd").startswith(f"{self.folder}{os.sep}"))


def descriptors() -> dict[str, str]:
    """The open files, sockets and pipes of this process, by number."""
    found = {name: _link(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    return {name: what for name, what in found.items() if what}  # the listing's own is closed by now


def _others() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _lives(pid: int) -> bool:
    state = _read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in DEAD


def _command_line(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # it ended meanwhile, or is another user's


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""

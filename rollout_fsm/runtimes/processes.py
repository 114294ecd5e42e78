"""The table of the machine's processes, and which of them belong to a box.

Programs are started in a session of their own and with a marker in their environment. What they start inherits both;
what leaves the session (`setsid`) still has the marker, what drops its environment still has the session or a parent.
Only a process that shed all three is missed. Blocking; callers run it in a thread. The invariant: no process is
signalled that is not known to be the box's, however often process ids are given out again.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping

from attrs import field, frozen

LINUX = sys.platform == "linux"
"""Elsewhere there are no markers to be seen, and a process that leaves its group and its parent is missed."""
DEAD = frozenset({"Z", "X"})
"""States of a process that runs no more and only waits for its parent to ask how it ended."""


@frozen(kw_only=True)
class Process:
    """A process that lives, as the table showed it."""

    pid: int
    started: int
    """Clock ticks since boot: together with `pid` it names a process for good, and they alone make two rows equal."""
    parent: int = field(eq=False)
    session: int = field(eq=False)
    serial: int | None = field(eq=False)
    """The value of the box's marker in its environment, None where it has none."""


@frozen(kw_only=True)
class Box:
    """What tells a box's processes from all others. Every program of the box has a serial number, its descendants
    have it too.
    """

    marker: str
    """Name of the variable whose value is the serial number."""
    led: Mapping[int, int]
    """Session to serial number, where the program was not waited for yet: its id cannot have been given to another."""
    orphaned: Mapping[int, int]
    """Session to serial number, where the program has been waited for and may have left something behind."""


def find(box: Box, wanted: range) -> list[Process]:
    """The living processes of the box that come from programs with a wanted serial number."""
    return belonging(list(census(box.marker)), box, wanted)


def belonging(table: Collection[Process], box: Box, wanted: range) -> list[Process]:
    """Of a table, the box's processes: marked, in a session that is the box's, or descended from such a one."""
    pids = {process.pid for process in table}
    # As long as a session has members its id is given to no new process: a leader that lives again is a stranger.
    ours = {**{session: serial for session, serial in box.orphaned.items() if session not in pids}, **box.led}
    sessions = {session for session, serial in ours.items() if serial in wanted}
    members: dict[int, Process] = {}
    candidates = [process for process in table if process.serial is None or process.serial in wanted]
    while True:
        found = [
            process
            for process in candidates
            if process.serial is not None or process.session in sessions or process.parent in members
        ]
        if not found:
            return list(members.values())
        members.update((process.pid, process) for process in found)
        sessions.update(process.session for process in found)
        candidates = [process for process in candidates if process.pid not in members]


def strike(box: Box, wanted: range, signum: int, spared: Collection[Process] = ()) -> list[Process]:
    """Find processes as `find` does and send each that is not spared a signal; returns those found."""
    found = find(box, wanted)
    for process in found:
        if process not in spared and _started(process.pid) == process.started:
            _send(process.pid, signum)
    return found


def group_exists(leader: int) -> bool:
    """Whether a program's process group has members, dead ones that nobody waited for included."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _send(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return  # it ended by itself
    except PermissionError:
        return  # it took another user's rights: it is found again and becomes a survivor


def proc_table(marker: str) -> Iterator[Process]:
    """Every living process, from /proc; one that ends meanwhile is left out."""
    key = f"\0{marker}=".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        # A process whose first thread has ended looks dead while its other threads live on.
        if fields is None or (fields[0] in DEAD and int(fields[17]) <= 1):
            continue
        _, found, after = (b"\0" + _environ(int(name))).partition(key)
        value = after.partition(b"\0")[0]
        yield Process(
            pid=int(name),
            started=int(fields[19]),
            parent=int(fields[1]),
            session=int(fields[3]),
            serial=int(value) if found and value.isdigit() else None,
        )


def ps_table() -> Iterator[Process]:
    """Every living process, from ps, which shows neither marker nor start; a process group stands for the session."""
    columns = "pid=,ppid=,pgid=,stat="
    shown = subprocess.run(
        ["ps", "-axo", columns], capture_output=True, stdin=subprocess.DEVNULL, text=True, check=True
    )
    for line in shown.stdout.splitlines():
        pid, parent, group, state = line.split()
        if state[0] not in DEAD:
            yield Process(pid=int(pid), started=0, parent=int(parent), session=int(group), serial=None)


def census(marker: str) -> Iterator[Process]:
    """Every living process, as well as this system can show it."""
    return proc_table(marker) if LINUX else ps_table()


def _started(pid: int) -> int | None:
    if not LINUX:
        return 0
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; a program's name before them may hold blanks and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""

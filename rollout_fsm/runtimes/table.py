"""The table of the machine's processes, as one look shows it.

A look ends when listing the processes once more names no new one, so that a process that forks and exits while the
look goes on is seen in its child. Environments are read once for each process, found by its id and its start. Decides
nothing and signals nobody. Blocking; callers run it in a thread, one look at a time.
"""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import define, evolve, field, frozen

LINUX = sys.platform == "linux"
"""Elsewhere there are no markers to be seen, and a process that leaves its group and its parent is missed."""
DEAD = frozenset({"Z", "X"})
"""States of a process that runs no more and only waits for its parent to ask how it ended."""
KERNEL = 0x00200000
"""The flag of threads of the kernel, which have no environment."""
ROUNDS = 32
"""How often the processes are listed in one look at most: on a machine where all fork, there are always new ones."""


@frozen(kw_only=True)
class Process:
    """A process that lives, as the table showed it."""

    pid: int
    started: int
    """Clock ticks since boot: together with `pid` it names a process for good, and they alone make two rows equal."""
    parent: int = field(eq=False)
    session: int = field(eq=False)
    serial: int | None = field(eq=False, default=None)
    """The value of a box's marker in its environment, None where it has none or no box was asked for."""
    marks: Mapping[str, int] = field(eq=False, repr=False, factory=dict)
    """Every marker in its environment, by name."""


@define(eq=False, repr=False)
class Table:
    """The processes of one look, by what ties them to a box."""

    processes: list[Process]
    _marked: defaultdict[str, list[Process]] = field(init=False, factory=lambda: defaultdict(list))
    _sessions: defaultdict[int, list[Process]] = field(init=False, factory=lambda: defaultdict(list))
    _children: defaultdict[int, list[Process]] = field(init=False, factory=lambda: defaultdict(list))

    def __attrs_post_init__(self) -> None:
        for process in self.processes:
            self._sessions[process.session].append(process)
            self._children[process.parent].append(process)
            for name in process.marks:
                self._marked[name].append(process)

    def about(self, marker: str, sessions: Iterable[int]) -> list[Process]:
        """Whoever bears the marker or is in one of the sessions, their sessions and their descendants, with `serial`
        filled in from the marker. The cost is that of the answer, not of the table.
        """
        met: dict[int, Process] = {}
        looked_into: set[int] = set()
        todo = list(self._marked.get(marker, ()))
        for session in sessions:
            todo += self._sessions.get(session, ())
        while todo:
            process = todo.pop()
            if process.pid in met:
                continue
            met[process.pid] = evolve(process, serial=process.marks.get(marker))
            todo += self._children.get(process.pid, ())
            if process.session not in looked_into:
                looked_into.add(process.session)
                todo += self._sessions[process.session]
        return list(met.values())


@define(eq=False, repr=False)
class Census:
    """Looks at the table again and again, and remembers the markers of the processes that it has met."""

    prefix: str
    """Variables whose names begin with it, and whose values are whole numbers, are markers."""
    _remembered: dict[tuple[int, int], Mapping[str, int]] = field(init=False, factory=dict)

    def look(self, meet: Callable[[Process], None] | None = None) -> Table:
        """Every living process, as well as this system can show it. `meet` is told of each as soon as it is seen."""
        processes: list[Process] = []
        for process in self._proc() if LINUX else ps_table():
            processes.append(process)
            if meet is not None:
                meet(process)
        present = {(process.pid, process.started) for process in processes}
        self._remembered = {key: marks for key, marks in self._remembered.items() if key in present}
        return Table(processes)

    def _proc(self) -> Iterator[Process]:
        listed: set[str] = set()
        for _ in range(ROUNDS):
            fresh = [name for name in os.listdir("/proc") if name.isdigit() and name not in listed]
            if not fresh:
                return
            listed.update(fresh)
            # The newest first: they are the ones that may be gone in a moment.
            for name in reversed(fresh):
                process = self._row(int(name))
                if process is not None:
                    yield process

    def _row(self, pid: int) -> Process | None:
        fields = stat_fields(pid)
        # A process whose first thread has ended looks dead while its other threads live on.
        if fields is None or (fields[0] in DEAD and int(fields[17]) <= 1):
            return None
        started = int(fields[19])
        marks = {} if int(fields[6]) & KERNEL else self._marks(pid, started)
        return Process(pid=pid, started=started, parent=int(fields[1]), session=int(fields[3]), marks=marks)

    def _marks(self, pid: int, started: int) -> Mapping[str, int]:
        marks = self._remembered.get((pid, started))
        if marks is None:
            environ = read_environ(pid)
            marks = dict(_markers(environ, self.prefix.encode()))
            # A process that is just being given another program shows an empty environment for a moment.
            if environ:
                self._remembered[pid, started] = marks
        return marks


def ps_table() -> Iterator[Process]:
    """Every living process, from ps, which shows neither marker nor start; a process group stands for the session."""
    columns = "pid=,ppid=,pgid=,stat="
    shown = subprocess.run(
        ["ps", "-axo", columns], capture_output=True, stdin=subprocess.DEVNULL, text=True, check=True
    )
    for line in shown.stdout.splitlines():
        pid, parent, group, state = line.split()
        if state[0] not in DEAD:
            yield Process(pid=int(pid), started=0, parent=int(parent), session=int(group))


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; a program's name before them may hold blanks and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def read_environ(pid: int) -> bytes:
    """The environment that a process was started with; empty where it may not be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _markers(environ: bytes, prefix: bytes) -> Iterator[tuple[str, int]]:
    if prefix not in environ:
        return
    for variable in environ.split(b"\0"):
        if variable.startswith(prefix):
            name, _, value = variable.partition(b"=")
            if value.isdigit():
                yield name.decode(errors="replace"), int(value)

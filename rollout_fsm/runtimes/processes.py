"""Which of the machine's processes belong to a box, and how they are signalled.

Programs are started in a session of their own and with a marker in their environment. What they start inherits both;
what leaves the session (`setsid`) still has the marker, what drops its environment still has the session or a parent.
Only a process that shed all three is missed. Blocking; callers run it in a thread. The invariant: no process is
signalled that is not known to be the box's, however often process ids are given out again.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from attrs import evolve, frozen

from rollout_fsm.runtimes.table import LINUX, Census, Process, stat_fields


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


@frozen(kw_only=True)
class Strike:
    """A signal for the living processes of a box that come from programs with a wanted serial number; signal 0 only
    finds them.
    """

    box: Box
    wanted: range
    signum: int
    spared: Collection[Process] = ()
    """They are found but not signalled."""


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


def strike(census: Census, strikes: Sequence[Strike]) -> list[list[Process]]:
    """Take one look for all; returns for each the processes found, in order. Those not spared are sent the signal.

    KILL goes to whole groups and before the look, since a group cannot be outrun by forking, and to marked processes
    in the moment in which they are seen, since they may have forked and gone when the look is over.
    """
    strikes = [evolve(each, box=_without_strangers(each.box)) for each in strikes]
    killers: defaultdict[str, list[range]] = defaultdict(list)
    for each in strikes:
        if each.signum == signal.SIGKILL:
            killers[each.box.marker].append(each.wanted)
            _kill_groups(each.box, each.wanted)

    def meet(process: Process) -> None:
        if any(serial in wanted for name, serial in process.marks.items() for wanted in killers.get(name, ())):
            _signal(process, signal.SIGKILL)

    table = census.look(meet if killers else None)
    return [_strike(each, table.about(each.box.marker, {**each.box.led, **each.box.orphaned})) for each in strikes]


def group_exists(leader: int) -> bool:
    """Whether a program's process group has members, dead ones that nobody waited for included."""
    return _exists(-leader)


def _strike(strike: Strike, table: Collection[Process]) -> list[Process]:
    found = belonging(table, strike.box, strike.wanted)
    for process in found:
        if process not in strike.spared:
            _signal(process, strike.signum)
    return found


def _without_strangers(box: Box) -> Box:
    """Its id is given to nobody while a program's group has members: who bears it, dead or alive, is a stranger."""
    return evolve(box, orphaned={leader: serial for leader, serial in box.orphaned.items() if not _exists(leader)})


def _kill_groups(box: Box, wanted: range) -> None:
    for leader, serial in {**box.orphaned, **box.led}.items():
        if serial in wanted:
            _send(-leader, signal.SIGKILL)


def _signal(process: Process, signum: int) -> None:
    """Signal the process, if its id is still its own. KILL takes its group along, which is the box's as its session
    is.
    """
    if not LINUX:
        _send(process.pid, signum)
        return
    fields = stat_fields(process.pid)
    if fields is None or int(fields[19]) != process.started:
        return
    group = int(fields[2])
    if signum == signal.SIGKILL and group not in (0, 1, os.getpgrp()):
        _send(-group, signum)
    _send(process.pid, signum)


def _send(target: int, signum: int) -> None:
    """Signal a process, or the group of which the number is the negative."""
    try:
        os.kill(target, signum)
    except ProcessLookupError:
        return  # it ended by itself
    except PermissionError:
        return  # it took another user's rights: it is found again and becomes a survivor


def _exists(target: int) -> bool:
    try:
        os.kill(target, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

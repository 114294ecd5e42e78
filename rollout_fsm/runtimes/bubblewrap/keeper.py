"""The first process of a box: it starts programs when it is told to, says how they ended, and ends them.

Run as a script inside the box, with the standard library alone, and of that only what loads fast. Programs of the box
run as the same user. That they can neither trace it nor see its memory, environment and descriptors is because it is
not dumpable, and that no signal of theirs reaches it is because it is process 1. When its socket to the engine is
closed, by the engine's death too, it exits, and the kernel ends every process of the box with it.

A request is one packet, `VERB NUMBER ARGUMENT…`. Answers are `done NUMBER VALUE` and `fail NUMBER ERRNO`;
`exit NUMBER STATUS` tells of a program. The invariant: it waits for nothing but its socket and its children.
"""

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import sys
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

TYPE_CHECKING = False  # that of the module typing takes longer to load than all else here
if TYPE_CHECKING:
    from typing import NoReturn

PACKET = 4096
"""Bytes of the longest packet."""
DESCRIPTORS = 8
"""How many descriptors come with a packet at most."""
DESCRIPTOR = array("i").itemsize
MARK = b"ROLLOUT_FSM_RUN="
"""The variable that says which program another one comes from. What sheds it is told by its parents and its session."""
ENVIRONMENT = 1 << 16
"""Bytes of an environment in which the mark is looked for."""
ROUNDS = 64
"""How often processes are listed in one look at most."""
EXECUTION = 0
"""As the number of a program: everything that was not there when the execution began."""
DEAD = (b"Z", b"X")
STOPPED = (b"T", b"t")
FIRST = 1
"""The id of this process, and of the session that whoever it starts leaves first."""
FIRST_TO_DIE = "1000"
"""Where the machine has no memory left, what is in a box is ended before the engine is."""

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_STEP = 8
"""Bytes of an instruction of a filter."""
PR_CAPBSET_DROP = 24
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITIES = range(64)
NO_CAPABILITIES = (0x20080522, 0), (0,) * 6
"""A header of version 3 for this process, and the sets of capabilities that it asks for: none."""


class Process:
    """A living process of the box, as /proc/PID/stat shows it. `key` names it for good."""

    def __init__(self, pid: int, fields: Sequence[bytes]) -> None:
        self.pid = pid
        self.stopped = fields[0] in STOPPED
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.key = (pid, int(fields[19]))


Table = dict[int, Process]


def look() -> Table:
    """Every living process but this one. They are listed until there is no new one."""
    found: Table = {}
    listed = {str(FIRST)}
    for _ in range(ROUNDS):
        fresh = [name for name in os.listdir("/proc") if name.isdigit() and name not in listed]
        if not fresh:
            break
        listed.update(fresh)
        for name in fresh:
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                # A process whose first thread has ended looks dead while its other threads live on.
                if fields[0] not in DEAD or int(fields[17]) > 1:
                    found[int(name)] = Process(int(name), fields)
    return found


def related(table: Table, seeds: Table, sessions: set[int]) -> Table:
    """Of a table, the seeds and whoever descends from them, or is in their or in these sessions."""
    found, sessions = dict(seeds), sessions | {process.session for process in seeds.values()}
    while True:
        sessions.discard(FIRST)
        more = {
            pid: process
            for pid, process in table.items()
            if pid not in found and (process.session in sessions or process.parent in found)
        }
        if not more:
            return found
        found |= more
        sessions |= {process.session for process in more.values()}


def marked(pid: int, mark: bytes) -> bool:
    """Whether a process was started with this variable in its environment."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read(ENVIRONMENT).split(b"\0")
    return False


def send_signal(target: int, signum: int) -> None:
    """Signal a process that may have ended by itself."""
    with suppress(OSError):
        os.kill(target, signum)


class Keeper:
    """Serves one engine until its socket is closed."""

    def __init__(self, engine: socket.socket, limits: Sequence[tuple[int, int, int]]) -> None:
        self.engine = engine
        self.limits = limits
        """What each program is limited to: kind, soft and hard limit."""
        self.running: dict[int, int] = {}
        """Process id, which is its session's too, to the number of each program that was not waited for yet."""
        self.setup: frozenset[tuple[int, int]] = frozenset()
        """The processes that lived when the execution began."""
        self.outgoing: deque[tuple[bytes, Sequence[int]]] = deque()

    def serve(self) -> None:
        """Answer until the engine is gone."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        while True:
            poll.register(self.engine, select.POLLIN | (select.POLLOUT if self.outgoing else 0))
            ready = dict(poll.poll())
            if woken in ready:
                os.read(woken, PACKET)
                self.reap()
            events = ready.get(self.engine.fileno(), 0)
            if events & select.POLLOUT:
                self.flush()
            if events & ~select.POLLOUT and not self.receive():
                return

    def receive(self) -> bool:
        """Answer one packet; False when there will be none any more."""
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT  # which socket.recv_fds does not hand on
        room = socket.CMSG_SPACE(DESCRIPTORS * DESCRIPTOR)
        try:
            packet, ancillary, _, _ = self.engine.recvmsg(PACKET, room, flags)
        except ConnectionError:  # it has left something unread
            return False
        if not packet:
            return False
        descriptors = array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        verb, number, *arguments = packet.split()
        try:
            self.answer(verb, int(number), arguments, descriptors)
        except OSError as error:
            self.send(b"fail %d %d" % (int(number), error.errno or 0))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def answer(self, verb: bytes, number: int, arguments: Sequence[bytes], descriptors: Sequence[int]) -> None:
        """Do what is asked. Raises `OSError` where it cannot be done."""
        value, passed = 0, list[int]()
        if verb == b"run":
            value = self.run(number, *descriptors)
        elif verb == b"strike":
            value = self.strike(*map(int, arguments))
        elif verb == b"begin":
            self.setup = frozenset(process.key for process in look().values())
        elif verb == b"listen":
            passed = [listening(arguments[0].decode(), int(arguments[1])).detach()]
        self.send(b"done %d %d" % (number, value), passed)

    def send(self, packet: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a packet as soon as the engine takes it. The descriptors are closed then."""
        self.outgoing.append((packet, descriptors))
        self.flush()

    def flush(self) -> None:
        """Send what the engine takes now. An engine that is gone is noticed in reading."""
        while self.outgoing:
            packet, descriptors = self.outgoing[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            try:
                self.engine.sendmsg([packet], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self.outgoing.clear()
                return
            self.outgoing.popleft()
            for descriptor in descriptors:
                os.close(descriptor)

    def reap(self) -> None:
        """Wait for whoever has ended, and tell of the programs among them."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self.running:
                    self.send(b"exit %d %d" % (self.running.pop(pid), os.waitstatus_to_exitcode(status)))

    def run(self, number: int, payload: int, status: int, *streams: int) -> int:
        """Start a program; returns its process id. `payload` says what, see `become`; on `status` is said why it could
        not be started; the rest are its standard output, error, and input if it has one.
        """
        content = os.pread(payload, os.fstat(payload).st_size, 0)
        pid = os.fork()
        if not pid:
            become(content.split(b"\0"), MARK + b"%d" % number, status, streams, self.limits)
        self.running[pid] = number
        return pid

    def strike(self, program: int, session: int, signum: int) -> int:
        """Signal what comes from a program, or from the whole execution; 0 only looks. Returns how many were found."""
        if signum == signal.SIGKILL:
            return self.kill(program, session)
        found = self.find(program, session, look())
        if signum:
            for pid in found:
                send_signal(pid, signum)
        return len(found)

    def kill(self, program: int, session: int) -> int:
        """Kill what comes from a program, or from the whole execution. Returns how many were found.

        Whoever forks and is gone is seen by no look. So everybody is killed in one step, which no fork escapes, or, if
        some are to be spared, everybody is stopped in one step, and the spared go on when the rest is dead.
        """
        before = look()
        if program == EXECUTION and not self.of_setup(before):
            send_signal(-1, signal.SIGKILL)
            return len(before)
        send_signal(-1, signal.SIGSTOP)
        now = look()
        found = self.find(program, session, now)
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        for pid in now.keys() - found.keys():
            if pid not in before or not before[pid].stopped:
                send_signal(pid, signal.SIGCONT)
        return len(found)

    def find(self, program: int, session: int, table: Table) -> Table:
        """Those of a table that come from a program, or from the whole execution."""
        if program == EXECUTION:
            spared = self.of_setup(table)
            return {pid: process for pid, process in table.items() if pid not in spared}
        mark = MARK + b"%d" % program
        seeds = {pid: process for pid, process in table.items() if marked(pid, mark)}
        if self.running.get(session) == program:
            if session in table:  # it may not have made its session yet
                seeds[session] = table[session]
            return related(table, seeds, {session})
        # It was waited for. Its session is still its own, unless its id was given to a new process since.
        return related(table, seeds, set() if session in table else {session})

    def of_setup(self, table: Table) -> Table:
        """What setup started, as far as it lives, with its sessions and descendants. The id of a session in which
        nobody of it lives any more may be anybody's.
        """
        return related(table, {pid: process for pid, process in table.items() if process.key in self.setup}, set())


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of the box."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def become(
    content: Sequence[bytes],
    mark: bytes,
    status: int,
    streams: Sequence[int],
    limits: Sequence[tuple[int, int, int]],
) -> "NoReturn":
    """In a process of its own: turn into a program, or say on `status` why not: the errno, and which file was there.

    `content`: the folder to begin in, the number of arguments, the arguments, the variables.
    """
    present = b""
    try:
        output, error, *given = streams
        source = given[0] if given else os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((source, output, error)):
            os.dup2(descriptor, number)
        signal.set_wakeup_fd(-1)
        for ignored in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # by this interpreter; exec would keep it
            signal.signal(ignored, signal.SIG_DFL)
        os.setsid()
        os.chdir(content[0])
        count = int(content[1])
        arguments = content[2 : 2 + count]
        environment = dict(variable.split(b"=", 1) for variable in (*content[2 + count :], mark))
        places = searched(arguments[0], environment)
        present = next(filter(os.path.isfile, places), b"")
        for kind, soft, hard in limits:
            resource.setrlimit(kind, (soft, hard))
        execute(places, arguments, environment)
    except (OSError, ValueError) as trouble:  # ValueError: a limit that this process may not set any more
        why = trouble.errno if isinstance(trouble, OSError) else errno.EPERM
        os.write(status, b"%d %s" % (why or 0, present[: PACKET // 2]))
    finally:
        os._exit(127)


def searched(program: bytes, environment: Mapping[bytes, bytes]) -> list[bytes]:
    """Where a program is looked for."""
    if b"/" in program:
        return [program]
    return [os.path.join(folder, program) for folder in environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")]


def execute(places: Sequence[bytes], arguments: Sequence[bytes], environment: Mapping[bytes, bytes]) -> "NoReturn":
    """Run the first of the files that can be. Raises the `OSError` that says most."""
    trouble = OSError(errno.ENOENT, "")
    for place in places:
        try:
            os.execve(place, list(arguments), environment)
        except OSError as error:
            if trouble.errno in (errno.ENOENT, errno.ENOTDIR):
                trouble = error
    raise trouble


class Filter(ctypes.Structure):
    """A filter of system calls as the kernel takes it: the number of its instructions, and these."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def protect(uid: int, calls: bytes) -> None:
    """Give up all privileges; become a user of the box's own, unless that is 0; let nobody look into this process; and
    have it and all that it starts use no other system calls than the filter lets through.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in CAPABILITIES:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header, sets = ((ctypes.c_uint32 * len(words))(*words) for words in NO_CAPABILITIES)
    made = Filter(len(calls) // SECCOMP_STEP, calls)
    for failed in (
        libc.capset(header, sets),
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0),
        libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(made), 0, 0),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "this kernel does not let the first process of a box protect it")


def main(control: int, left: int, calls: int, uid: int, *limits: int) -> None:
    """`control`: the socket; `left`: a file for how many processes lived when the engine was gone; `calls`: a file with
    the filter of system calls; `limits`: three numbers each.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(FIRST_TO_DIE)
    protect(uid, os.pread(calls, os.fstat(calls).st_size, 0))
    os.close(calls)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(control, False)
    os.set_inheritable(left, False)
    each = zip(limits[::3], limits[1::3], limits[2::3], strict=True)
    with socket.socket(fileno=control) as engine:
        keeper = Keeper(engine, [lowered(*limit) for limit in each])
        os.ftruncate(left, 0)  # until now it says what lived before
        keeper.send(b"done 0 0")
        keeper.serve()
        os.pwrite(left, b"%d" % len(look()), 0)


def lowered(kind: int, soft: int, hard: int) -> tuple[int, int, int]:
    """A limit that can be set: no higher than this process has it itself."""
    _, own = resource.getrlimit(kind)
    most = hard if own == resource.RLIM_INFINITY else min(hard, own)
    return kind, min(soft, most), most


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

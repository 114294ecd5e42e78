"""Runs the program of a tool server, and ends with it all that it started: also when the engine is gone, however.

`python -I -S supervisor.py LIFELINE LC_CTYPE PROGRAM [ARGUMENT]…`, with the program's standard streams as its own.
LIFELINE is a socket whose other end only the engine holds. On it is said, once, `0` or the errno of what kept the
program from being started; its end is the end of the engine. It exits as the program did. It does not react to being
asked to end: whoever asks the program asks this, too.

On Linux, whatever descends from it becomes its child when its parents are dead: it has no descendants once it has no
children. Elsewhere it ends the program's process group. Nothing here but the standard library, and little of that: it
starts in a few milliseconds.
"""

import errno
import os
import select
import signal
import sys
from contextlib import suppress

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""By this process, the last two because the interpreter does; not by the program."""
CANNOT_BE_RUN = 127


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parents die."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for(program: int, lifeline: int) -> int | None:
    """Wait until the program exits, and for whoever else has been adopted; returns its wait status, None if the engine
    was gone first.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == program:
                    return ended[1]
        ready = dict(poll.poll())
        if lifeline in ready:
            return None
        os.read(woken, select.PIPE_BUF)


def end_all(program: int) -> None:
    """Kill whatever is left, and wait for it. Only children are killed: nobody is given the id of one that was not
    waited for. Theirs become children then.
    """
    with suppress(ChildProcessError):
        while True:
            for child in children() if LINUX else [-program]:
                with suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            os.waitpid(-1, 0)


def children() -> list[int]:
    """The processes whose parent this is."""
    found, parent = list[int](), b"%d" % os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[1] == parent:
                found.append(int(name))
    return found


def exit_as(status: int) -> None:
    """End as the process did whose wait status this is: of a signal, if it did."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it was not this process that went wrong
        signum = os.WTERMSIG(status)
        with suppress(OSError):  # KILL has no handler
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    sys.exit(os.WEXITSTATUS(status))


def main(lifeline: int, locale: str, argv: list[str]) -> None:
    os.set_inheritable(lifeline, False)
    os.environ.pop("LC_CTYPE", None)  # this interpreter sets it
    if locale:
        os.environ["LC_CTYPE"] = locale
    if LINUX:
        adopt_orphans()
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    try:
        program = os.posix_spawnp(argv[0], argv, os.environ, setsid=True, setsigdef=IGNORED)
    except OSError as error:
        os.write(lifeline, b"%d" % (error.errno or errno.ENOEXEC))
        sys.exit(CANNOT_BE_RUN)
    with open(os.devnull, "r+b", 0) as nothing:
        for stream in (0, 1):  # their ends are the program's to bring about
            os.dup2(nothing.fileno(), stream)
    with suppress(OSError):  # the engine may be gone
        os.write(lifeline, b"0")
    status = wait_for(program, lifeline)
    end_all(program)
    exit_as(status or 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])

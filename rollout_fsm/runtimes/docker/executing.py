"""One program in a container, from its start to its end.

The command line that starts it may stay connected to what the program leaves behind, so its end is read from what is
said behind its output, on both streams, under a token that the program does not know.
"""

import errno
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence

import trio
from attrs import define, field, frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import ProgramResult
from rollout_fsm.runtimes.docker import scripts
from rollout_fsm.runtimes.docker.container import Container
from rollout_fsm.runtimes.output import HeadTail

CHUNK = 65536
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_WORD = 8
"""Characters that say how a program ended."""
LAST_SIGNAL = 64
LAST_WORDS = 0.5
"""Seconds that the command line has for ending by itself once its program has ended."""


@define(eq=False, repr=False)
class Stream:
    """What a program says on one stream, up to the line that announces its end. Knows no pipe."""

    token: bytes
    kept: HeadTail
    ended: str | None = field(init=False, default=None)
    """How it ended, once that was said."""
    _held: bytes = field(init=False, default=b"")
    """What may be the begin of that line."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if self.ended is not None:
            return
        self._held += chunk
        end = re.search(b"\n" + self.token + b" ([a-z0-9]{1,%d})\n" % LONGEST_WORD, self._held)
        if end is None:
            self._pass_on(max(0, len(self._held) - len(self.token) - LONGEST_WORD - 2))
        else:
            self._pass_on(end.start())
            self.ended = end[1].decode()

    def finish(self) -> None:
        """There is no more."""
        if self.ended is None:
            self._pass_on(len(self._held))

    def _pass_on(self, count: int) -> None:
        self.kept.feed(self._held[:count])
        self._held = self._held[count:]


@frozen(kw_only=True)
class Ended:
    """How a program ended: an exit status in digits, or a word of the script's for why it did not begin."""

    how: str
    out: HeadTail
    err: HeadTail

    def result(self, program: str, runtime: str) -> ProgramResult:
        """What the caller gets. Raises what kept the program from beginning."""
        match self.how:
            case "gone":
                raise SandboxError(f"runtime {runtime} cannot run {program!r}: its workspace is gone")
            case "absent":
                raise FileNotFoundError(errno.ENOENT, f"no such program in the container of runtime {runtime}", program)
            case "denied":
                why = (
                    f"it is not executable in the container of runtime {runtime}; chmod +x it, or name its interpreter"
                )
                raise PermissionError(errno.EACCES, why, program)
        if not self.how.isdigit():
            raise SandboxError(f"runtime {runtime} cannot tell how {program!r} ended: its shell said {self.how!r}")
        code = int(self.how)
        by_a_signal = 128 < code <= 128 + LAST_SIGNAL
        return ProgramResult(
            exit_code=128 - code if by_a_signal else code, stdout=self.out.text(), stderr=self.err.text()
        )


def settings(token: str, place: str, environment: Mapping[str, str]) -> bytes:
    """The first line of a program's input: what its shell is to assign. Raises `ValueError` for a name that no shell
    takes."""
    for name in environment:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a variable that a container's shell takes: letters, digits and _")
    words = [f"{scripts.TOKEN}={token}", f"{scripts.PLACE}={_quoted(place)}"]
    words += [f"export {name}={_quoted(value)}" for name, value in environment.items()]
    return ("; ".join(words) + "\n").encode()


def _quoted(value: str) -> str:
    return shlex.quote(value).replace("\n", f"'\"${scripts.NEWLINE}\"'")


async def execute(
    container: Container, argv: Sequence[str], environment: Mapping[str, str], data: bytes, cap: int
) -> Ended:
    """Run a program to its end. Cancelled, it ends the command line alone; ending the program is the caller's. Raises
    `SandboxError` where the container does not run it.
    """
    token = secrets.token_hex(16)
    out, err = (Stream(token.encode(), HeadTail(cap)) for _ in range(2))
    given = settings(token, container.workspace, environment) + data
    process = await container.client.open("exec", "-i", container.name, "sh", "-c", scripts.RUN, "sh", *argv)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, process.stdin, given)
            async with trio.open_nursery() as readers:
                readers.start_soon(_read, process.stdout, out)
                readers.start_soon(_read, process.stderr, err)
            with trio.move_on_after(LAST_WORDS):
                await process.wait()
            nursery.cancel_scope.cancel()
    finally:
        await end(process)
    code = process.returncode
    how = out.ended or err.ended
    if how is None and code is not None and code > 128:
        how = str(code)  # its shell was ended, by a signal
    if how is None:
        said = err.kept.text().strip() or f"exit status {code}"
        raise SandboxError(f"runtime {container.client.runtime} could not run {argv[0]!r}: {said}")
    return Ended(how=how, out=out.kept, err=err.kept)


async def end(process: trio.Process) -> None:
    """End a command line, at once, and let go of it."""
    process.kill()
    with trio.CancelScope(shield=True):
        await process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                await pipe.aclose()


async def _feed(stdin: trio.abc.SendStream | None, data: bytes) -> None:
    assert stdin is not None
    async with stdin:
        try:
            await stdin.send_all(data)
        except trio.BrokenResourceError:
            return  # the program wants no more of it, which is its right


async def _read(pipe: trio.abc.ReceiveStream | None, stream: Stream) -> None:
    assert pipe is not None
    while stream.ended is None and (chunk := bytes(await pipe.receive_some(CHUNK))):
        stream.feed(chunk)
    stream.finish()

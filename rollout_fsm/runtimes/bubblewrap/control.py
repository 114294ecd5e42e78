"""The engine's side of the socket to a box's first process: questions and answers, and news of programs that ended.

Who is on the other side runs among hostile programs. What comes from there is bounded and matched against the few
words that are expected; anything else ends the box. The invariant: a question that was sent is answered, or fails, in
bounded time, whoever is cancelled meanwhile.
"""

import os
import re
import socket
from array import array
from collections.abc import Sequence

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError

PACKET = 4096
"""Bytes of the longest packet."""
WORDS = re.compile(rb"(done|fail|exit) ([0-9]{1,15}) (-?[0-9]{1,15})")
DESCRIPTOR = array("i").itemsize
READY = 0
"""The number under which the first process says that it is ready."""
PATIENCE = 10.0
"""Seconds in which the first process, which waits for nobody, has to answer."""


@define(eq=False)
class Question:
    """A question, and its answer once there is one."""

    answered: trio.Event = field(init=False, factory=trio.Event)
    value: int = field(init=False, default=0)
    errno: int | None = field(init=False, default=None)
    descriptor: int | None = field(init=False, default=None)


@define(eq=False)
class Exit:
    """The end of a program, once it came: its exit status, minus the signal for one that a signal ended. It stays None
    where the box ended first."""

    came: trio.Event = field(init=False, factory=trio.Event)
    status: int | None = field(init=False, default=None)


@define(eq=False, repr=False)
class Control:
    """The socket. `box` is what messages call it."""

    box: str
    _socket: trio.socket.SocketType
    lost: str | None = field(init=False, default=None)
    """Why the box is dead, once it is."""
    _numbers: int = field(init=False, default=READY)
    _questions: dict[int, Question] = field(init=False, factory=dict)
    _exits: dict[int, Exit] = field(init=False, factory=dict)
    _sending: trio.Lock = field(init=False, factory=trio.Lock)

    @classmethod
    def of(cls, box: str, engine: socket.socket) -> "Control":
        """Over this socket, whose other end the first process has."""
        control = cls(box, trio.socket.from_stdlib_socket(engine))
        control._questions[READY] = Question()
        return control

    def lose(self, why: str) -> None:
        """The box is dead, or is to die: everything that waits fails, and the first process ends with the socket."""
        if self.lost is not None:
            return
        self.lost = why
        self._socket.close()
        for question in self._questions.values():
            question.answered.set()
        for end in self._exits.values():
            end.came.set()

    def require(self) -> None:
        """Raises `SandboxError` where the box is dead."""
        if self.lost is not None:
            raise SandboxError(f"runtime {self.box} {self.lost}")

    async def ready(self) -> None:
        """Wait until the first process is ready. Raises `SandboxError` where it dies before."""
        await self._questions[READY].answered.wait()
        self.require()

    def number(self) -> int:
        """A number for a question; a program bears that of the question that started it."""
        self._numbers += 1
        return self._numbers

    def expect(self, program: int) -> Exit:
        """To be told of the end of a program that is about to be started."""
        end = self._exits[program] = Exit()
        if self.lost is not None:
            end.came.set()
        return end

    def forget(self, program: int) -> None:
        """Nobody waits for the end of the program any more."""
        self._exits.pop(program, None)

    @trio.lowlevel.enable_ki_protection
    async def ask(self, verb: str, *words: object, number: int | None = None, send: Sequence[int] = ()) -> Question:
        """Ask; returns the answered question, whose `descriptor`, if there is one, is the caller's to close.

        Raises `OSError` for what the first process could not do, `SandboxError` where the box is dead.
        """
        number = self.number() if number is None else number
        packet = " ".join(map(str, (verb, number, *words))).encode()
        question = Question()
        async with self._sending:
            self.require()
            self._questions[number] = question
            try:
                await self._send(packet, send)
            except BaseException:
                del self._questions[number]
                raise
        with trio.CancelScope(shield=True):
            with trio.move_on_after(PATIENCE) as scope:
                await question.answered.wait()
            if scope.cancelled_caught:
                self.lose(f"is dead: its first process did not answer for {PATIENCE:g} s")
        if question.errno is not None:
            raise OSError(question.errno, os.strerror(question.errno))
        if question.descriptor is None:
            self.require()
        return question

    async def _send(self, packet: bytes, descriptors: Sequence[int]) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            await self._socket.sendmsg([packet], ancillary)
        except (OSError, trio.ClosedResourceError) as error:
            self.lose(f"is dead: its first process is gone ({error})")
            self.require()

    async def attend(self) -> None:
        """Take what the first process says, until it is gone."""
        room = socket.CMSG_SPACE(DESCRIPTOR)
        while self.lost is None:
            try:
                packet, ancillary, flags, _ = await self._socket.recvmsg(PACKET, room, socket.MSG_CMSG_CLOEXEC)
            except (OSError, trio.ClosedResourceError):
                packet, ancillary, flags = b"", [], 0
            descriptors = _descriptors(ancillary)
            try:
                self._take(packet, descriptors, whole=not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _take(self, packet: bytes, descriptors: list[int], *, whole: bool) -> None:
        if not packet:
            self.lose("is dead: its first process is gone")
            return
        words = WORDS.fullmatch(packet)
        if words is None or not whole:
            self.lose(f"was ended: its first process said {packet[:100]!r}, which is nothing that it says")
            return
        verb, number, value = words[1], int(words[2]), int(words[3])
        if verb == b"exit":
            if (end := self._exits.pop(number, None)) is not None:
                end.status = value
                end.came.set()
            return
        question = self._questions.pop(number, None)
        if question is None:
            self.lose(f"was ended: its first process answered the question {number}, which nobody asked")
            return
        question.value = value
        question.errno = value if verb == b"fail" else None
        question.descriptor = descriptors.pop() if descriptors else None
        question.answered.set()


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % DESCRIPTOR])
    return found.tolist()

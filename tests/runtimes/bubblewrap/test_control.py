"""The socket to a box's first process: what comes from there is believed only as far as it can be true."""

import os
import socket
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap.control import Control


@asynccontextmanager
async def controlled() -> AsyncIterator[tuple[Control, trio.socket.SocketType]]:
    """A control, and the other end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, keeper = Control.of("box", ours), trio.socket.from_stdlib_socket(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(control.attend)
        yield control, keeper
        control.lose("was stopped")
    keeper.close()


async def test_questions_are_answered_by_their_numbers_and_programs_told_of() -> None:
    async with controlled() as (control, keeper), trio.open_nursery() as nursery:
        values: dict[str, int] = {}

        async def ask(verb: str) -> None:
            values[verb] = (await control.ask(verb, 1, "x")).value

        await keeper.send(b"done 0 0")
        await control.ready()
        for verb in ("one", "other"):
            nursery.start_soon(ask, verb)
        asked = sorted([await keeper.recv(100) for _ in range(2)])
        assert [packet.split()[0] for packet in asked] == [b"one", b"other"]
        end = control.expect(77)
        for packet in reversed(asked):
            verb, number, *_ = packet.split()
            await keeper.send(b"done %s %d" % (number, len(verb)))
        await keeper.send(b"exit 77 -9")
        await end.came.wait()
        assert end.status == -9
        await keeper.send(b"exit 78 0")  # nobody waits for it any more
    assert values == {"one": 3, "other": 5}


async def test_what_could_not_be_done_is_raised_as_the_error_that_it_was() -> None:
    async with controlled() as (control, keeper), trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(PermissionError):
                await control.ask("listen", "127.0.0.1", 1)

        nursery.start_soon(ask)
        _, number, *_ = (await keeper.recv(100)).split()
        await keeper.send(b"fail %s 13" % number)


async def test_a_descriptor_comes_with_its_answer() -> None:
    async with controlled() as (control, keeper), trio.open_nursery() as nursery:

        async def ask() -> None:
            descriptor = (await control.ask("listen")).descriptor
            assert descriptor is not None
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)

        nursery.start_soon(ask)
        _, number = (await keeper.recv(100)).split()
        await send(keeper, b"done %s 0" % number, descriptors=1)


async def send(keeper: trio.socket.SocketType, packet: bytes, *, descriptors: int) -> None:
    """Send a packet with so many descriptors."""
    sent = array("i", [keeper.fileno()] * descriptors)
    await keeper.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])


@pytest.mark.parametrize(
    "packet",
    [
        b"done 5 0",
        b"done 1 0 0",
        b"done -1 0",
        b"done 0 9999999999999999",
        b"done 0 x",
        b"gone 0 0",
        b"done 0 0\n",
        b"\xff" * 50,
        b"done 0 0" + b"0" * 10_000,
    ],
)
async def test_what_no_first_process_says_ends_the_box(packet: bytes) -> None:
    async with controlled() as (control, keeper):
        end = control.expect(7)
        await keeper.send(packet)
        await end.came.wait()
        assert end.status is None
        with pytest.raises(SandboxError, match="runtime box was ended: its first process"):
            await control.ask("ping")
        assert await keeper.recv(100) == b""


async def test_more_descriptors_than_were_asked_for_end_the_box_and_are_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with controlled() as (control, keeper):
        await send(keeper, b"done 0 0", descriptors=20)
        with pytest.raises(SandboxError, match="which is nothing that it says"):
            await control.ready()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_descriptor_that_nobody_asked_for_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with controlled() as (control, keeper):
        end = control.expect(7)
        await send(keeper, b"exit 7 0", descriptors=1)
        await end.came.wait()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_first_process_that_is_gone_fails_all_that_waits() -> None:
    async with controlled() as (control, keeper), trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(SandboxError, match="runtime box is dead: its first process is gone"):
                await control.ask("ping")

        for _ in range(3):
            nursery.start_soon(ask)
        end = control.expect(7)
        await keeper.recv(100)
        keeper.close()
        await end.came.wait()
        late = control.expect(8)
        assert late.came.is_set()
        await ask()


async def test_a_first_process_that_does_not_answer_ends_the_box_in_time() -> None:
    async with controlled() as (control, keeper):
        with pytest.raises(SandboxError, match="is dead: its first process did not answer for 10 s"):
            await control.ask("ping")
        assert (await keeper.recv(100)).startswith(b"ping")
        assert await keeper.recv(100) == b""


async def test_a_question_that_was_sent_is_answered_although_who_asked_is_cancelled() -> None:
    async with controlled() as (control, keeper), trio.open_nursery() as nursery:
        answered: list[int] = []

        async def ask() -> None:
            answered.append((await control.ask("run")).value)

        nursery.start_soon(ask)
        _, number = (await keeper.recv(100)).split()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await keeper.send(b"done %s 42" % number)
            await trio.testing.wait_all_tasks_blocked()
        assert answered == [42]

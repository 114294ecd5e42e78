"""The engine's side of the relay, when the container's side is somebody else."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtime import Answer
from rollout_fsm.runtimes.docker.carrier import AT_ONCE, HEAD, WINDOW
from rollout_fsm.runtimes.docker.relay import Relay

pytestmark = pytest.mark.real_time


async def relay(argv: Sequence[str], answer: Answer) -> Relay:
    """A relay to a program that is no carrier."""
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(argv, stdin=pipe, stdout=pipe, stderr=pipe)
    return Relay("box", [("127.0.0.1", 80)], process, [answer])


def frame(kind: bytes, number: int, data: bytes = b"", *, length: int | None = None) -> bytes:
    return HEAD.pack(kind, number, len(data) if length is None else length) + data


READY = frame(b"R", 0)
OPEN = frame(b"O", 1, b"\0")

HOSTILE = {
    "a place that there is not": frame(b"O", 1, b"\7"),
    "no place": frame(b"O", 1),
    "one connection twice": OPEN + OPEN,
    "more data than was granted": OPEN + frame(b"D", 1, b"x") * (WINDOW + 2),
    "leave for more than was sent": OPEN + frame(b"A", 1),
    "more connections than are served": b"".join(frame(b"O", number, b"\0") for number in range(2 * AT_ONCE + 1)),
    "half a frame": OPEN + frame(b"D", 1, b"half", length=5),
    "nothing that is a frame": b"\xff" * 100_000,
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
async def test_a_carrier_that_says_what_is_no_frame_is_cut_off_with_what_it_had_connected(
    said: bytes, tmp_path: Path
) -> None:
    begun, ended = [], []

    async def hold(stream: trio.SocketStream) -> None:
        begun.append(stream)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(stream)

    (tmp_path / "words").write_bytes(READY + said)
    there = await relay(["sh", "-c", f"cat {tmp_path}/words; exec sleep 1000"], hold)
    await there._ready()
    if said == HOSTILE["half a frame"]:
        there._process.kill()
    await there._carry()
    await there.close()
    assert len(begun) == len(ended)
    assert there._process.returncode is not None


async def test_connections_that_are_not_known_any_more_are_spoken_of_in_vain(tmp_path: Path) -> None:
    late = b"".join(frame(kind, 7, b"x" if kind == b"D" else b"") for kind in (b"D", b"E", b"A", b"C"))
    (tmp_path / "words").write_bytes(READY + late + OPEN + frame(b"D", 1, b"hello") + frame(b"E", 1))
    heard: list[bytes] = []

    async def listen(stream: trio.SocketStream) -> None:
        heard.append(b"".join([bytes(chunk) async for chunk in stream]))
        await there.close()

    there = await relay(["sh", "-c", f"cat {tmp_path}/words; cat > {tmp_path}/said"], listen)
    await there._ready()
    with trio.CancelScope(shield=True):
        await there._carry()
    assert heard == [b"hello"]


@pytest.mark.parametrize("first", ["", "R", "X\\0\\0\\0\\0\\0\\0"])
async def test_what_is_no_carrier_is_complained_of(first: str) -> None:
    async def nobody(stream: trio.SocketStream) -> None:
        raise AssertionError

    there = await relay(["sh", "-c", f"printf '{first}'; echo no module >&2"], nobody)
    with pytest.raises(SandboxError, match="cannot carry the framework's routes into its container: no module; the im"):
        await there._ready()
    await there._process.wait()
    for pipe in (there._process.stdin, there._process.stdout, there._process.stderr):
        assert pipe is not None
        await pipe.aclose()

"""Bodies of many values: read in a thread, while others go on."""

import json
import threading
from collections.abc import Mapping

import pytest
import trio
import trio.testing
from attrs import field, frozen

from rollout_fsm.gateway import open_gateway
from rollout_fsm.gateway.bodies import MANY_VALUES, MAX_VALUES, THREADS, Reader
from rollout_fsm.gateway.connection import Head
from rollout_fsm.gateway.dialects.chat import ChatDialect
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.messages import JSON, Request

from .raw import connected, post
from .sessions import Scripted

pytestmark = pytest.mark.real_time

HEAD = Head(method="POST", path="/v1/chat/completions")


@frozen
class Watched(ChatDialect):
    """Holds each parse until it is released, where it is in a thread; counts those that have begun."""

    begun: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))
    release: threading.Event = field(factory=threading.Event)
    threads: list[str] = field(factory=list)

    def parse_request(self, body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
        self.threads.append(threading.current_thread().name)
        self.begun.release()
        if threading.current_thread() is not threading.main_thread():
            self.release.wait()
        return super().parse_request(body, recall)


def body(values: int) -> bytearray:
    """A chat request with so many commas, colons and opening brackets."""
    plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}, separators=(",", ":"))
    missing = values - sum(map(plain.count, ",:["))
    return bytearray(plain.replace('"x"', '"' + "," * missing + '"').encode())


async def test_others_go_on_while_a_body_of_many_values_is_read() -> None:
    dialect, reader = Watched(), Reader()
    large, small = body(MANY_VALUES), body(MANY_VALUES - 1)
    reading: list[Request] = []

    async def read_large() -> None:
        reading.append((await reader.read(HEAD, large, dialect))[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_large)
        await trio.to_thread.run_sync(dialect.begun.acquire)
        await reader.read(HEAD, small, dialect)
        assert reading == []
        dialect.release.set()
    assert len(reading[0].messages[0].text) > MANY_VALUES - 10
    assert [name == threading.main_thread().name for name in dialect.threads] == [False, True]


async def test_a_reading_that_is_cancelled_is_left_at_once_and_keeps_its_place_until_it_ends() -> None:
    dialect, reader = Watched(), Reader()
    for _ in range(THREADS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.read, HEAD, body(MANY_VALUES), dialect)
            await trio.to_thread.run_sync(dialect.begun.acquire)
            nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, HEAD, body(MANY_VALUES), dialect)
        await trio.testing.wait_all_tasks_blocked()
        assert len(dialect.threads) == THREADS
        dialect.release.set()
    assert len(dialect.threads) == THREADS + 1


async def test_what_is_wrong_with_a_body_of_many_values_is_told_as_of_any_other() -> None:
    with pytest.raises(DialectError, match="expected a JSON object, got list"):
        await Reader().read(HEAD, bytearray(b"[" + b"1," * MANY_VALUES + b"1]"), ChatDialect())


async def test_values_in_one_another_are_counted_like_values_beside_one_another() -> None:
    nested = "[" * 90 + "]" * 90
    many = ",".join([nested] * (MAX_VALUES // 90))
    with pytest.raises(DialectError, match=r"505,506 commas, colons and opening brackets"):
        await Reader().read(HEAD, bytearray(f'{{"x":[{many}]}}'.encode()), ChatDialect())


@pytest.mark.parametrize(
    ("path", "told"), [("/v1/messages/count_tokens", {"input_tokens": 41}), ("/v1/messages", None)]
)
async def test_a_body_of_many_values_is_answered(path: str, told: object) -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        ask = body(MANY_VALUES).replace(b"{", b'{"max_tokens":9,', 1)
        answer = await client.ask(post(slot.secret, bytes(ask), path=path))
    assert answer.status == 200
    assert told is None or answer.document == told

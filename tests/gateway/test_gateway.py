"""The gateway as its engine holds it: slots, how failures are answered, how it opens and closes."""

import errno
import gc
import weakref

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rollout_fsm.errors import OverlongPromptError, ProviderError, TaskError, TurnRefused
from rollout_fsm.gateway import Slot, open_gateway, status_of
from rollout_fsm.messages import Request, Response

from .raw import Answer, connected, get, post
from .sessions import Held, Scripted

pytestmark = pytest.mark.real_time


# Slots


async def test_a_closed_slot_answers_that_the_rollout_is_concluded() -> None:
    session = Scripted()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        slot.close()
        slot.close()
        for request in (post(slot.secret), get(slot.secret)):
            answer = await client.ask(request)
            assert (answer.status, answer.error["message"]) == (400, "rollout concluded")
    assert session.requests == []


async def test_a_call_in_flight_goes_on_when_its_slot_is_closed() -> None:
    session = Held()
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        await client.send(post(slot.secret))
        await session.begun.wait()
        slot.close()
        session.release.set()
        assert (await client.answer()).status == 200


async def test_a_closed_slot_keeps_no_session_even_while_its_connection_is_open() -> None:
    class Failing:
        async def respond(self, request: Request) -> Response:
            raise TaskError("the last call failed")

    session = Failing()
    gone = weakref.ref(session)
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(session)
        gc.collect()
        gc.disable()
        try:
            assert (await client.ask(post(slot.secret))).status == 502
            await wait_all_tasks_blocked()
            slot.close()
            del session
            assert gone() is None
        finally:
            gc.enable()
        assert (await client.ask(post(slot.secret))).error["message"] == "rollout concluded"


async def test_secrets_are_long_distinct_and_shown_by_no_repr() -> None:
    async with open_gateway() as gateway:
        slots = [gateway.open_slot(Scripted()) for _ in range(100)]
        assert len({slot.secret for slot in slots}) == 100
        assert all(len(slot.secret) >= 43 for slot in slots)
        assert not any(slot.secret in repr((slot, gateway)) for slot in slots)


# Failures of a call


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TurnRefused("rollout stopped: max_turns", condition="max_turns"), 400),
        (OverlongPromptError("too long"), 400),
        (OverlongPromptError("too long", status_code=413), 413),
        (ProviderError("slow down", status_code=429), 429),
        (ProviderError("moved", status_code=302), 502),
        (ProviderError("odd", status_code=600), 502),
        (ProviderError("unreachable"), 502),
        (TaskError("a hook failed"), 502),
        (ValueError("a bug"), 502),
        (ExceptionGroup("several", [ProviderError("slow", status_code=503), ValueError("x")]), 503),
        (trio.Cancelled, 502),
    ],
)
def test_each_failure_has_its_status(error: BaseException | type[trio.Cancelled], status: int) -> None:
    assert status_of(stray() if isinstance(error, type) else error) == status


def stray() -> trio.Cancelled:
    """A cancellation of something that is over."""
    kept: list[trio.Cancelled] = []

    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                kept.append(error)
                raise

    trio.run(main)
    return kept[0]


@pytest.mark.parametrize(
    ("error", "type_", "code", "message"),
    [
        (TurnRefused("rollout stopped: x", condition="x"), "turn_refused", "x", "rollout stopped: x"),
        (TurnRefused("no segment is running"), "turn_refused", "refused", "no segment is running"),
        (ProviderError("slow", status_code=429), "provider_error", None, "ProviderError: slow"),
        (TaskError("hook h failed"), "task_error", None, "TaskError: hook h failed"),
        (ValueError(), "value_error", None, "ValueError"),
        (ExceptionGroup("g", [TaskError("in a group")]), "task_error", None, "TaskError: in a group"),
    ],
)
@pytest.mark.parametrize("stream", [b"false", b"true"])
async def test_a_failure_is_answered_in_the_formats_shape_before_any_byte_of_a_stream(
    error: Exception, type_: str, code: str | None, message: str, stream: bytes
) -> None:
    body = b'{"messages":[{"role":"user","content":"x"}],"stream":%b}' % stream
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted([error]))
        answer = await client.ask(post(slot.secret, body))
        assert answer.status == status_of(error)
        assert answer.headers["content-type"] == "application/json"
        assert answer.error == {"message": message, "type": type_, "param": None, "code": code}
        assert (await client.ask(get(slot.secret))).status == 200


async def test_a_stray_cancellation_of_a_session_is_an_ordinary_failure() -> None:
    with trio.CancelScope() as over:
        over.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
    async with open_gateway() as gateway, connected(gateway) as client:
        slot = gateway.open_slot(Scripted([kept]))
        assert (await client.ask(post(slot.secret))).status == 502
        group = gateway.open_slot(Scripted([BaseExceptionGroup("g", [kept, TaskError("and this")])]))
        assert (await client.ask(post(group.secret))).error["message"] == "TaskError: and this"


async def test_a_failure_that_cannot_be_printed_is_answered_all_the_same() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    async with open_gateway() as gateway, connected(gateway) as client:
        answer = await client.ask(post(gateway.open_slot(Scripted([UnprintableError()])).secret))
    assert (answer.status, answer.error["type"]) == (502, "unprintable_error")


async def test_an_exit_is_no_failure_of_a_call() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_gateway() as gateway, connected(gateway) as client:
            await client.ask(post(gateway.open_slot(Scripted([SystemExit(3)])).secret))
    assert caught.group_contains(SystemExit)


# Opening and closing


async def test_an_address_in_use_is_an_error_that_says_which_and_what_to_do() -> None:
    async with open_gateway() as gateway:
        port = int(gateway.url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{port}: .*port 0 takes a free one") as caught:
            async with open_gateway(port=port):
                pytest.fail("two gateways on one port")
    assert caught.value.errno == errno.EADDRINUSE


async def test_a_port_that_cannot_be_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="cannot listen on port 70000: expected 1 to 65535, or 0 for a free one"):
        async with open_gateway(port=70_000):
            pytest.fail("a gateway on no port")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
async def test_the_url_can_be_called(host: str, shown: str) -> None:
    async with open_gateway(host=host) as gateway, connected(gateway) as client:
        assert gateway.url.startswith(f"http://{shown}:")
        assert gateway.url.endswith("/v1")
        slot = gateway.open_slot(Scripted())
        assert slot.url == gateway.url
        assert (await client.ask(post(slot.secret))).status == 200


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with open_gateway():
            raise error
    assert caught.value is error


async def test_a_cancelled_block_ends_its_gateway_and_its_calls() -> None:
    session = Held()
    with trio.CancelScope() as scope:
        async with open_gateway(grace=1000) as gateway, connected(gateway) as client:
            await client.send(post(gateway.open_slot(session).secret))
            await session.begun.wait()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert session.cancelled.is_set()


async def test_connections_that_wait_for_a_client_end_at_once() -> None:
    async with open_gateway(grace=1_000_000) as gateway, connected(gateway) as idle, connected(gateway) as half:
        slot = gateway.open_slot(Scripted())
        await idle.ask(post(slot.secret))
        await half.send(post(slot.secret)[:-3])
        await wait_all_tasks_blocked()


async def test_a_call_in_flight_may_end_within_the_grace_and_is_the_last_of_its_connection() -> None:
    session = Held()
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery, open_gateway(grace=1000) as gateway:
        slot = gateway.open_slot(session)
        started = trio.Event()

        async def call() -> None:
            async with connected(gateway) as client:
                await client.send(post(slot.secret) + post(slot.secret))
                started.set()
                answers.append(await client.answer())
                assert await client.ended()

        async def release_once_nobody_is_let_in() -> None:
            while True:
                try:
                    async with connected(gateway):
                        await trio.lowlevel.checkpoint()
                except OSError:
                    break
            session.release.set()

        nursery.start_soon(call)
        await started.wait()
        await session.begun.wait()
        nursery.start_soon(release_once_nobody_is_let_in)
    assert [(answer.status, answer.headers["connection"]) for answer in answers] == [(200, "close")]
    assert session.calls == 1


async def test_a_call_that_outlasts_the_grace_is_cancelled() -> None:
    session = Held()
    async with trio.open_nursery() as nursery:
        async with open_gateway(grace=0) as gateway:
            slot = gateway.open_slot(session)

            async def call() -> None:
                async with connected(gateway) as client:
                    await client.send(post(slot.secret))
                    assert await client.ended()

            nursery.start_soon(call)
            await session.begun.wait()
        assert session.cancelled.is_set()


async def test_a_listener_that_was_passed_in_is_served_too() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    async with open_gateway() as gateway, trio.open_nursery() as nursery:
        nursery.start_soon(gateway.serve, listener)
        slot: Slot = gateway.open_slot(Scripted())
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(post(slot.secret))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError, match=str(address[1])):
        await trio.open_tcp_stream(*address)


async def test_hundreds_of_rollouts_share_a_gateway() -> None:
    sessions = [Scripted() for _ in range(300)]
    async with open_gateway() as gateway, trio.open_nursery() as nursery:

        async def call(session: Scripted) -> None:
            async with connected(gateway) as client:
                assert (await client.ask(post(gateway.open_slot(session).secret))).status == 200

        for session in sessions:
            nursery.start_soon(call, session)
    assert all(len(session.requests) == 1 for session in sessions)

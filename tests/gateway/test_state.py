"""A rollout's state over HTTP: read, replaced, never by two at once, and by nobody who was not given its key."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define

from rollout_fsm import Trace
from rollout_fsm.gateway import Gateway, Slot, open_gateway
from rollout_fsm.gateway.state import MAX_STATE, StateDoor
from rollout_fsm.trace import TaskInfo

from .raw import Answer, Raw, connected, get, post
from .sessions import Scripted

pytestmark = pytest.mark.real_time


@define(eq=False)
class Rollout:
    """A rollout with a slot and a door, and a client of its own."""

    trace: Trace
    slot: Slot
    door: StateDoor
    client: Raw

    async def read(self, secret: str | None = None) -> Answer:
        return await self.client.ask(get(self.door.secret if secret is None else secret, path="/state"))

    async def write(self, state: object, *headers: str, secret: str | None = None) -> Answer:
        body = state if isinstance(state, bytes) else json.dumps(state).encode()
        key = self.door.secret if secret is None else secret
        return await self.client.ask(post(key, body, *headers, path="/state", method="PUT"))


@asynccontextmanager
async def rollout(gateway: Gateway, **state: object) -> AsyncIterator[Rollout]:
    trace = Trace(id="t", task=TaskInfo(type="Task"), state=dict(state))
    slot = gateway.open_slot(Scripted())
    async with connected(gateway) as client:
        yield Rollout(trace, slot, gateway.open_state(slot, trace), client)


@asynccontextmanager
async def alone(**state: object) -> AsyncIterator[Rollout]:
    async with open_gateway() as gateway, rollout(gateway, **state) as opened:
        yield opened


async def test_it_is_read_and_replaced_in_place() -> None:
    async with alone(a=1, b=[1, {"c": None}]) as one:
        held = one.trace.state
        answer = await one.read()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.document == {"a": 1, "b": [1, {"c": None}]}
        assert (await one.write({"a": 2, "d": "ü"})).status == 204
        assert one.trace.state is held
        assert held == {"a": 2, "d": "ü"}
        assert (await one.read()).document == held


async def test_its_url_is_the_gateways_own_without_the_version() -> None:
    async with open_gateway() as gateway, rollout(gateway) as one:
        assert one.door.url == gateway.url.removesuffix("/v1") + "/state"
        assert repr(one.door.secret) not in repr(one.door)


async def test_what_has_not_changed_stays_the_object_that_others_hold() -> None:
    pair, names = (1, 2), {"x"}
    async with alone(pair=pair, names=names, count=1, number=1.0) as one:
        document = (await one.read()).document
        assert document == {"pair": [1, 2], "names": ["x"], "count": 1, "number": 1.0}
        await one.write({**document, "count": True, "number": 1})
        assert (one.trace.state["pair"], one.trace.state["names"]) == (pair, names)
        assert one.trace.state["pair"] is pair
        assert [type(one.trace.state[name]) for name in ("count", "number")] == [bool, int]


async def test_of_two_who_read_the_second_to_write_is_told_that_it_has_changed() -> None:
    async with alone(count=1) as one:
        tag = (await one.read()).headers["etag"]
        first = await one.write({"count": 2}, f"If-Match: {tag}")
        assert first.status == 204
        second = await one.write({"count": 2}, f"If-Match: {tag}")
        assert (second.status, second.error["code"]) == (412, "state_changed")
        assert first.headers["etag"] == second.headers["etag"] == (await one.read()).headers["etag"] != tag
        assert (await one.write({"count": 3}, f'If-Match: "other", {second.headers["etag"]}')).status == 204
        assert (await one.write({"count": 4}, "If-Match: *")).status == 204
        assert one.trace.state == {"count": 4}


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"", 400, "the state that was sent is not JSON"),
        (b"{", 400, "the state that was sent is not JSON"),
        (b'{"a": NaN}', 400, "NaN is not a number that JSON has"),
        (b'{"a": 1e999}', 400, "beyond the numbers"),
        (b"[" * 200 + b"]" * 200, 400, "nested too deeply"),
        (b"[1]", 400, "a state is a JSON object, not a list"),
        (b" " * (MAX_STATE + 1), 413, "4,194,304 are allowed"),
    ],
)
async def test_what_is_no_state_is_refused_and_changes_nothing(body: bytes, status: int, why: str) -> None:
    async with alone(a=1) as one:
        answer = await one.write(body)
        assert answer.status == status
        assert why in answer.error["message"]
        assert one.trace.state == {"a": 1}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"a": {"b": object()}}, "a.b: <object object at"),
        ({"a": float("inf")}, "a: inf is not a number that JSON has"),
        ({"a": {1: 2}}, "a: the key 1 (a whole number) is not a string"),
    ],
)
async def test_a_state_that_is_no_json_is_neither_handed_out_nor_replaced(state: dict[str, Any], why: str) -> None:
    async with alone(**state) as one:
        for answer in (await one.read(), await one.write({})):
            assert (answer.status, answer.error["code"]) == (409, "state_not_json")
            assert why in answer.error["message"]
        assert one.trace.state == state


async def test_a_state_that_is_too_large_is_not_handed_out() -> None:
    async with alone(a="x" * MAX_STATE) as one:
        answer = await one.read()
        assert (answer.status, answer.error["code"]) == (409, "state_too_large")


async def test_the_models_key_does_not_open_it_and_its_key_opens_nothing_else() -> None:
    async with open_gateway() as gateway, rollout(gateway, a=1) as one, rollout(gateway, b=2) as other:
        assert one.door.secret != one.slot.secret
        for key in (one.slot.secret, "", "x", one.door.secret[:-1]):
            assert [(await one.read(key)).status, (await one.write({}, secret=key)).status] == [401, 401]
        assert [
            (await one.client.ask(request)).status for request in (post(one.door.secret), get(one.door.secret))
        ] == [
            401,
            401,
        ]
        assert (await one.read(other.door.secret)).document == {"b": 2}
        assert one.trace.state == {"a": 1}


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH"])
async def test_other_methods_are_not_taken(method: str) -> None:
    async with alone(a=1) as one:
        answer = await one.client.ask(post(one.door.secret, b"{}", path="/state", method=method))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, PUT, OPTIONS")


@pytest.mark.parametrize("closes_slot", [True, False])
async def test_once_the_exchange_is_over_it_is_closed(closes_slot: bool) -> None:
    async with alone(a=1) as one:
        if closes_slot:
            one.slot.close()
        one.door.close()
        for answer in (await one.read(), await one.write({})):
            assert answer.status in (400, 409)
            assert answer.error["code"] in ("refused", "state_closed")
        assert one.trace.state == {"a": 1}

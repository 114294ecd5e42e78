"""What a trace's state held is not written: whoever reads it from a trace of a file is told so."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from rollout_fsm import ChatHarness, ScriptedModel, Task, Trace, open_engine, reward, trace_from_json, trace_to_json
from rollout_fsm.unwritten_state import StateNotWrittenError, UnwrittenState

READS: dict[str, Callable[[Any], object]] = {
    "an item": lambda state: state["cart"],
    "get": lambda state: state.get("cart"),
    "get with a default": lambda state: state.get("cart", 0),
    "setdefault": lambda state: state.setdefault("cart", []),
    "pop": lambda state: state.pop("cart", None),
    "in": lambda state: "cart" in state,
    "len": len,
    "bool": bool,
    "iteration": list,
    "keys": lambda state: state.keys(),
    "values": lambda state: state.values(),
    "items": lambda state: state.items(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_it_raises(read: Callable[[Any], object]) -> None:
    with pytest.raises(StateNotWrittenError, match=r"keep in trace\.info what is to be read"):
        read(UnwrittenState())


def test_what_was_put_into_it_since_is_there() -> None:
    state = UnwrittenState()
    state["seen"] = 1
    assert (state["seen"], state.get("seen"), "seen" in state, state.pop("seen")) == (1, 1, True, 1)
    with pytest.raises(StateNotWrittenError):
        state["seen"]


def test_it_can_be_shown_and_copied() -> None:
    state = UnwrittenState()
    assert repr(state) == "<state that was not written>"
    for other in (copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert type(other) is UnwrittenState


@frozen(kw_only=True)
class Shop(Task):
    @reward
    def cart(self, trace: Trace) -> float:
        return float(trace.state.get("cart") == ["milk"])

    @reward
    def polite(self, trace: Trace) -> float:
        return float("please" in trace.last_reply)

    async def setup(self, trace: Trace, runtime: object) -> None:
        trace.state["cart"] = ["milk"]


async def test_a_reward_that_reads_it_is_skipped_where_the_trace_was_read_from_a_file() -> None:
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(Shop(prompt="go"), harness=ChatHarness(), model=ScriptedModel(["please"]))
        assert trace.reward == 2.0
        here = await engine.rescore(trace, Shop)
        assert (here.skipped, trace.reward) == ((), 2.0)
        read = trace_from_json(trace_to_json(trace))
        rescored = await engine.rescore(read, Shop)
    assert [(skipped.name, skipped.why) for skipped in rescored.skipped] == [
        ("cart", "it reads trace.state, which is not written")
    ]
    assert rescored.failures == ()
    assert read.rewards["cart"] is None
    assert read.reward == 1.0
    assert read == trace_from_json(trace_to_json(read))


@frozen(kw_only=True)
class Fails(Task):
    @reward
    def good(self) -> float:
        return 1.0

    @reward
    def broken(self, trace: Trace) -> float:
        if trace.info:
            raise ValueError("the grader is down")
        return 1.0


async def test_a_reward_of_which_a_part_failed_when_it_was_scored_again_does_not_count() -> None:
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(Fails(prompt="go"), harness=ChatHarness(), model=ScriptedModel(["done"]))
        assert trace.ending is not None
        assert trace.ending.counts
        trace.info["down"] = True
        await engine.rescore(trace, Fails)
        assert (trace.reward, trace.ending.counts) == (1.0, False)
        del trace.info["down"]
        trace.info.clear()
        await engine.rescore(trace, Fails)
        assert (trace.reward, trace.ending.counts) == (2.0, True)

"""`check_trace`: real traces conform, and nothing that is changed in one goes unnoticed."""

from collections.abc import Callable

import pytest
from attrs import evolve, frozen

from rollout_fsm import ChatHarness, ErrorRecord, ScriptedModel, Task, Trace, check_trace, metric, open_engine, reward
from rollout_fsm.trace import ModelCall, Reward, Span
from rollout_fsm.trace_json import trace_from_json, trace_to_json


@frozen(kw_only=True)
class Scored(Task):
    """A task that is scored, or whose reward fails."""

    answer: str

    @reward
    def right(self, trace: Trace) -> float:
        """Whether the answer is right."""
        return float(self.answer in trace.last_reply)

    @metric
    def turns(self, trace: Trace) -> float:
        """Fails where there is no answer to compare with."""
        if not self.answer:
            raise ValueError("nothing to compare with")
        return trace.num_turns


async def ran(task: Task, *, says: str | Exception = "it is 4") -> Trace:
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(task, harness=ChatHarness(), model=ScriptedModel([says]))
    return trace  # noqa: RET504  (the engine has let go of it by now)


async def completed() -> Trace:
    return await ran(Scored(prompt="2 + 2?", answer="4"))


async def failed() -> Trace:
    return await ran(Scored(prompt="2 + 2?", answer="4"), says=RuntimeError("overloaded"))


async def test_traces_of_every_outcome_conform_in_memory_and_from_a_file() -> None:
    traces = [
        await completed(),
        await failed(),
        await ran(Scored(prompt="2 + 2?", answer="")),
        await ran(Scored(answer="4")),
    ]
    async with open_engine(gateway=False) as engine:
        rollout = engine.rollout(Scored(prompt="2 + 2?", answer="4"), harness=ChatHarness(), model=ScriptedModel(["4"]))
        await rollout.open()
        await rollout.cancel()
    traces.append(rollout.trace)

    assert [trace.transitions[-1].target for trace in traces] == ["completed", *["failed"] * 3, "aborted"]
    assert [check_trace(trace) for trace in traces] == [[]] * len(traces)
    assert [check_trace(trace_from_json(trace_to_json(trace))) for trace in traces] == [[]] * len(traces)


def _later(trace: Trace) -> float:
    return trace.transitions[-1].time + 10


def _shift(trace: Trace, place: int, seconds: float) -> None:
    trace.transitions[place] = evolve(trace.transitions[place], time=trace.transitions[place].time + seconds)


def _open_span(trace: Trace) -> None:
    assert trace.timing.scoring is not None
    trace.timing.scoring.end = None


def _long_setup(trace: Trace) -> None:
    assert trace.timing.setup is not None
    assert trace.timing.setup.end is not None
    trace.timing.setup.end += 5


def _backward_boot(trace: Trace) -> None:
    assert trace.timing.boot is not None
    trace.timing.boot.end = trace.timing.boot.start - 1


def _shares(trace: Trace) -> None:
    assert trace.timing.agent is not None
    trace.timing.agent.model = evolve(trace.timing.agent.model, duration=99.0)


def _late_message(trace: Trace) -> None:
    trace.nodes[0] = evolve(trace.nodes[0], timestamp=_later(trace))


def _late_call(trace: Trace) -> None:
    trace.calls[0] = evolve(trace.calls[0], time=Span(start=trace.calls[0].time.start, end=_later(trace)))


def _early_call(trace: Trace) -> None:
    """The segment begins, and takes place, later than its call."""
    for place in range(3, len(trace.transitions)):
        _shift(trace, place, 4)
    assert trace.timing.agent is not None
    assert trace.timing.agent.end is not None
    trace.timing.agent.end += 4


def _set(name: str, value: object) -> Callable[[Trace], None]:
    return lambda trace: setattr(trace, name, value)


def _more_turns(trace: Trace) -> None:
    trace.nodes[0] = evolve(trace.nodes[1], parent=None)


CHANGES: dict[str, tuple[Callable[[Trace], object], str]] = {
    "a transition is dropped": (lambda trace: trace.transitions.pop(3), "transition 4 .*starts in 'stepping' instead"),
    "the last transition is dropped": (lambda trace: trace.transitions.pop(), "ends in 'releasing'.* not final"),
    "a transition comes twice": (
        lambda trace: trace.transitions.append(trace.transitions[-1]),
        r"transition 11 .*'completed' does not take 'released'|starts in 'releasing' instead",
    ),
    "ok is denied": (_set("ok", False), "ok is false, and the path ends in 'completed'"),
    "the stop condition is no name": (_set("stop_condition", "(given)"), r"stop_condition is '\(given\)', which is no"),
    "the stop condition is empty": (_set("stop_condition", ""), "stop_condition is '', which is no name"),
    "a call was made while no segment ran": (_early_call, r"calls\[0\] is in no segment"),
    "it is not completed": (_set("is_completed", False), "is_completed is false"),
    "the stop condition is gone": (_set("stop_condition", None), "stop_condition is None"),
    "the stop condition is that of a failure": (
        _set("stop_condition", "no_progress"),
        "stop_condition is 'no_progress'",
    ),
    "there is an error": (
        lambda trace: trace.errors.append(ErrorRecord(type="TaskError", message="x")),
        "there are 1 errors, first a TaskError",
    ),
    "time runs backwards": (lambda trace: _shift(trace, 4, -1000), "transition 5 .* before the one before"),
    "it began before it was minted": (lambda trace: setattr(trace.timing, "start", _later(trace)), "was minted"),
    "a span is open": (_open_span, "timing.scoring is open"),
    "a span is gone": (lambda trace: setattr(trace.timing, "finalize", None), "timing.finalize is missing"),
    "a span is too long": (_long_setup, "timing.setup ends at"),
    "a span runs backwards": (_backward_boot, "timing.boot ends 1 s before it starts"),
    "the agent's shares are no shares": (_shares, "together they are the span"),
    "a message comes after the end": (_late_message, r"nodes\[0\] is .* after the exchange ended"),
    "a call ends after the end": (_late_call, r"calls\[0\] is .* after the exchange ended"),
    "a call is open": (
        lambda trace: trace.calls.append(ModelCall(time=Span(start=trace.calls[0].time.start))),
        r"calls\[1\] is open",
    ),
    "a number is no number": (lambda trace: trace.metrics.update(turns=float("nan")), "metrics.turns is nan"),
    "a reply has no call": (lambda trace: trace.calls.clear(), r"nodes\[1\] is a reply, and 0 calls committed it"),
    "a reply has two calls": (lambda trace: trace.calls.append(trace.calls[0]), "2 calls committed it"),
    "a call is of no reply": (
        lambda trace: trace.calls.append(evolve(trace.calls[0], node=0)),
        r"calls\[1\].node is 0, which is no reply",
    ),
    "a parent comes after its child": (
        lambda trace: trace.nodes.__setitem__(0, evolve(trace.nodes[0], parent=1)),
        r"nodes\[0\].parent is 1",
    ),
    "there is one reply more": (_more_turns, "num_turns is 1, and 2 replies"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
async def test_what_is_changed_in_a_completed_trace_is_noticed(change: Callable[[Trace], object], said: str) -> None:
    trace = await completed()
    change(trace)

    faults = check_trace(trace)

    assert faults
    with pytest.raises(AssertionError, match=said):
        raise AssertionError("\n".join(faults))


async def test_a_number_for_a_signal_that_did_not_run_is_noticed() -> None:
    trace = await failed()
    trace.rewards["right"] = Reward(score=1.0)
    trace.metrics["turns"] = 3

    assert check_trace(trace) == [
        "rewards.right is 1, and the rollout was never scored",
        "metrics.turns is 3, and the rollout was never scored",
    ]


async def test_a_failed_trace_without_an_error_is_noticed() -> None:
    trace = await failed()
    trace.errors.clear()

    assert check_trace(trace) == ["the path ends in 'failed', and no error says why"]


async def test_a_span_of_a_phase_that_was_never_reached_is_noticed() -> None:
    trace = await failed()
    trace.timing.scoring = Span(start=trace.timing.start, end=trace.timing.start)

    assert check_trace(trace) == ["timing.scoring is there, and the path never went through a state of it"]


async def test_a_trace_without_transitions_is_no_life_of_the_machine() -> None:
    trace = await completed()
    trace.transitions.clear()

    assert any("'created'" in fault for fault in check_trace(trace))

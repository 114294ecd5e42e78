"""The verdict notices what is wrong: each thing that it judges, made wrong after a play in which all was well."""

from collections.abc import Callable

import pytest
import trio

from rollout_fsm.trace import Reward, TraceWarning
from tests.cancellation.cases import CASES, DRIVEN
from tests.cancellation.plan import Plan
from tests.cancellation.playing import play
from tests.cancellation.stage import Stage
from tests.cancellation.verdict import FINAL, explained, faults_of

ABORTED = "tools scope@16"
Wrong = Callable[[Stage], object]


def began(stage: Stage) -> list[str]:
    return stage.lives[0].world.began


def swapped(stage: Stage) -> None:
    events = began(stage)
    first, second = events.index("tools.stop:b"), events.index("tools.stop:a")
    events[first], events[second] = events[second], events[first]


def warned(stage: Stage) -> None:
    stage.lives[0].trace.warnings.append(TraceWarning(kind="close", message="harness session did not close: no"))


def mutated(stage: Stage) -> None:
    stage.lives[0].trace.info["late"] = True


def state(stage: Stage) -> None:
    trace = stage.lives[0].trace
    trace.transitions.pop()
    trace.is_completed = False


def without(step: str) -> Wrong:
    return lambda stage: began(stage).remove(step)


WRONGS: dict[str, tuple[Wrong, str]] = {
    **{
        f"{step} did not happen": (without(step), f"{step} began 0 times")
        for step in CASES["tools"].steps
        if step != "runtime.kill"
    },
    "the agent was not killed": (without("runtime.kill"), "killed 0 times instead of 1"),
    "a step was made twice": (lambda stage: began(stage).append("runtime.stop"), "runtime.stop began 2 times"),
    "the order was another": (swapped, "released in the order"),
    "a step was cut short": (lambda stage: stage.lives[0].world.ended.remove("session.close"), "was cut short"),
    "something new began": (lambda stage: began(stage).append("finalize"), "finalize began after the interruption"),
    "a warning nobody expects": (warned, "the warnings are"),
    "another state": (state, "ended aborting instead of aborted"),
    "another stop condition": (lambda stage: setattr(stage.lives[0].trace, "stop_condition", "error"), "instead of"),
    "ok": (lambda stage: setattr(stage.lives[0].trace, "ok", True), "ok is True in aborted"),
    "a mutated trace": (mutated, "changed after its end"),
    "a reward": (lambda stage: stage.lives[0].trace.rewards.update(good=Reward(score=1.0)), "without scoring"),
    "finished twice": (lambda stage: stage.lives[0].finished.append(""), "finished 2 times"),
    "a cycle": (lambda stage: setattr(stage.lives[0], "freed", False), "kept by a cycle"),
    "a group": (lambda stage: setattr(stage, "raised", BaseExceptionGroup), "BaseExceptionGroup came out"),
    "nothing raised": (lambda stage: setattr(stage, "raised", None), "nothing came out"),
    "an interrupt": (lambda stage: setattr(stage, "raised", KeyboardInterrupt), "KeyboardInterrupt came out"),
    "a group from the block": (lambda stage: stage.left.append(ExceptionGroup), "ExceptionGroup came out of the"),
    "a verb that returned": (lambda stage: setattr(stage.lives[0].calls[-1], "raised", None), "scope was cancelled"),
    "a verb that hangs": (lambda stage: setattr(stage.lives[0].calls[-1], "pending", True), "did not return"),
    "a task left": (lambda stage: setattr(stage, "leftover", 1), "1 tasks left"),
    "left too early": (lambda stage: setattr(stage, "left_in", ["aborting"]), "was left in aborting"),
    "time lost": (lambda stage: setattr(stage, "seconds", 3.0), "it took 3 s"),
    "an error logged": (lambda stage: stage.logged.append("a bug of the engine"), "logged: a bug of the engine"),
}


@pytest.mark.parametrize(("wrong", "said"), WRONGS.values(), ids=WRONGS)
def test_what_is_wrong_is_noticed(wrong: Wrong, said: str) -> None:
    stage = play(Plan.read(ABORTED))
    assert faults_of(stage) == []
    assert stage.raised is trio.Cancelled
    wrong(stage)
    assert any(said in fault for fault in faults_of(stage)), faults_of(stage)


def test_a_failure_names_the_plan_the_place_the_state_and_the_faults_and_how_to_play_it_again() -> None:
    stage = play(Plan.read(ABORTED))
    shown = explained(stage, ["it is wrong"])
    assert f"python -m tests.cancellation '{ABORTED}'" in shown
    assert "struck" in shown
    assert "met: scope in stepping, driven by main, after model" in shown
    assert "- it is wrong" in shown


def test_points_are_reached_in_every_state_and_the_play_is_the_same_each_time() -> None:
    states: set[str] = set()
    for name in DRIVEN:
        for text in (name, f"{name} cancel@9"):
            first, second = (play(Plan.read(text)).schedule for _ in range(2))
            assert (first.seen, first.where) == (second.seen, second.where)
            states |= first.states
    assert states >= {"created", "booting", "setup", "waiting", "stepping", "stopping", "stopped", "closing"}
    assert states >= {"finalizing", "scoring", "releasing", "failing", "discarding", "aborting", *FINAL}


@pytest.mark.parametrize("name", CASES)
def test_left_alone_a_case_ends_as_it_says(name: str) -> None:
    stage = play(Plan(name))
    assert faults_of(stage) == []
    assert {life.state for life in stage.lives} == {CASES[name].ends}


@pytest.mark.parametrize("text", ["tools", "tools scope@7 interrupt@12", "plain cancel@3 session.close=hangs"])
def test_a_plan_is_read_as_it_is_written(text: str) -> None:
    assert str(Plan.read(text)) == text


def test_a_plan_with_means_that_there_are_not_is_refused() -> None:
    with pytest.raises(ValueError, match="'scopes@7' is no interruption"):
        Plan.read("tools scopes@7")

"""The five questions, in their order, over every combination of answers; alone, and in every activity at one and the
same instant (L14a)."""

from collections.abc import Awaitable, Callable, Iterator
from itertools import product

import pytest
import trio
import trio.testing
from attrs import frozen

from rollout_fsm import HarnessError, Rollout, RolloutTimeouts, TaskError, TurnRefused, open_engine
from rollout_fsm.errors import record
from rollout_fsm.outcome import Blame, Failure, Outcome, bare, interrupts, judge, lost, plain
from tests.world import World, error_types, kinds, mint, play, raises, stray, warnings, whole

BLAME = Blame(boundary=HarnessError, doing="harness setup", note=", shared")
TIMEOUT = record(HarnessError("harness setup timed out"))


async def kept_cancelled() -> trio.Cancelled:
    try:
        await stray()
    except trio.Cancelled as cancelled:
        return cancelled
    raise AssertionError("nothing was raised")


# ---- pure


@pytest.mark.parametrize(
    ("cancelled", "expired", "raised", "trigger"),
    [
        (c, e, r, "cancel" if c else "timed_out" if e else "errored" if r else "ready")
        for c, e, r in product((True, False), repeat=3)
    ],
)
def test_the_first_question_answered_with_yes_decides(
    cancelled: bool, expired: bool, raised: bool, trigger: str
) -> None:
    error = ValueError("mine") if raised else None
    outcome = None if raised else Outcome(trigger="ready")
    verdict = judge(
        cancelled=cancelled, expired=expired, timeout=lambda: TIMEOUT, error=error, outcome=outcome, blame=BLAME
    )
    assert verdict.trigger == trigger
    overruled = raised and (cancelled or expired)
    assert verdict.lost == (("ValueError: mine",) if overruled else ())
    assert verdict.warning == ("after_cancel" if cancelled else "after_timeout" if expired else None)
    messages = [failure.error.message for failure in verdict.failures]
    expected = {"timed_out": [TIMEOUT.message], "errored": ["harness setup failed: ValueError: mine"]}
    assert messages == expected.get(trigger, [])


def test_a_bound_whose_end_is_a_stop_brings_no_failure() -> None:
    verdict = judge(
        cancelled=False, expired=True, timeout=lambda: None, error=None, outcome=Outcome(trigger="ready"), blame=BLAME
    )
    assert (verdict.trigger, verdict.failures) == ("timed_out", ())


@pytest.mark.parametrize(("cancelled", "expired"), [(True, False), (False, True), (False, False)])
def test_failures_that_stand_come_first_whatever_the_verdict(cancelled: bool, expired: bool) -> None:
    standing = Failure(error=record(TaskError("a reward failed")), stands=True)
    verdict = judge(
        cancelled=cancelled,
        expired=expired,
        timeout=lambda: None,
        error=None,
        outcome=Outcome(trigger="scored"),
        blame=BLAME,
        standing=[standing],
    )
    assert verdict.failures == (standing,)


def test_a_refusal_that_loses_is_no_warning() -> None:
    assert lost([TurnRefused("stopped"), ValueError("mine")]) == ["ValueError: mine"]


async def test_cancelled_leaves_are_dropped_and_a_cancelled_alone_is_a_failure() -> None:
    cancelled = await kept_cancelled()
    group = BaseExceptionGroup("both", [cancelled, ValueError("mine")])
    for error, messages in (
        (group, ["harness setup failed: ValueError: mine"]),
        (cancelled, ["harness setup failed: it raised Cancelled although nothing was cancelled"]),
    ):
        verdict = judge(cancelled=False, expired=False, timeout=lambda: None, error=error, outcome=None, blame=BLAME)
        assert verdict.trigger == "errored"
        assert [failure.error.message for failure in verdict.failures] == messages
    del cancelled, group, error


def test_an_activity_without_an_outcome_is_a_bug_of_the_engine() -> None:
    with pytest.raises(TypeError, match="no outcome"):
        judge(cancelled=False, expired=False, timeout=lambda: None, error=None, outcome=None, blame=BLAME)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_found_in_a_group_and_raised_bare(kind: type[BaseException]) -> None:
    inner = kind()
    group = BaseExceptionGroup("outer", [ValueError(), BaseExceptionGroup("inner", [inner])])
    assert interrupts(group) == [inner]
    assert bare(group) is inner
    assert [type(error) for error in plain(group)] == [ValueError]


def test_bare_opens_a_group_of_one_only() -> None:
    single, several = ExceptionGroup("g", [ValueError()]), ExceptionGroup("g", [ValueError(), KeyError()])
    assert isinstance(bare(single), ValueError)
    assert bare(several) is several
    assert interrupts(None) == plain(None) == []


# ---- in every activity, all at one instant

BOUNDS = RolloutTimeouts(boot=9, setup=9, agent=9, finalize=9, scoring=9)
AT = 9


@frozen(kw_only=True)
class Case:
    """What is true at the instant at which the foreign code returns."""

    event: str
    caller: bool
    asked: bool
    expired: bool
    raised: bool

    def __str__(self) -> str:
        said = [name for name in ("caller", "asked", "expired", "raised") if getattr(self, name)]
        return f"{self.event}: {'+'.join(said) or 'nothing'}"

    @property
    def trigger(self) -> str | None:
        """What decides; None for what was returned."""
        return (
            "cancel"
            if self.caller or self.asked
            else "timed_out"
            if self.expired
            else "errored"
            if self.raised
            else None
        )


CASES = [
    Case(event=event, caller=c, asked=a, expired=e, raised=r)
    for event in ("runtime.start", "task.setup", "session.open", "segment", "finalize", "score.good")
    for c, a, e, r in product((False, True), repeat=4)
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_all_orders_of_the_five_questions_at_one_instant(case: Case) -> None:
    world = World()
    async with open_engine(gateway=False) as engine, trio.open_nursery() as elsewhere:
        rollout = mint(engine, world, timeouts=BOUNDS)
        with trio.CancelScope() as scope:

            async def act() -> None:
                with trio.CancelScope(shield=True):  # deaf to all of it, and judged all the same
                    await trio.sleep(AT if case.expired else AT - 1)
                    if case.asked:
                        elsewhere.start_soon(rollout.cancel)
                        await trio.testing.wait_all_tasks_blocked()
                    if case.caller:
                        scope.cancel()
                if case.raised:
                    raise ValueError("mine")

            world.script[case.event] = act
            await whole(rollout)
        assert scope.cancelled_caught is case.caller
    taken = [each.trigger for each in rollout.trace.transitions]
    decisive = [trigger for trigger in taken if trigger in ("cancel", "timed_out", "errored")]
    assert decisive == ([case.trigger] if case.trigger else [])
    ends = {"cancel": "aborted", "timed_out": "failed", "errored": "failed", None: "completed"}
    assert rollout.state == ends[case.trigger]
    assert world.unreleased() == []
    errors = error_types(rollout.trace)
    assert bool(errors) is (case.trigger in ("timed_out", "errored"))
    if case.trigger == "timed_out":
        assert "9 s" in rollout.trace.errors[-1].message
    if case.event != "score.good":  # a signal's failures stand (L63)
        overruled = case.raised and case.trigger in ("cancel", "timed_out")
        assert kinds(rollout.trace) == (
            [f"after_{'cancel' if case.trigger == 'cancel' else 'timeout'}"] if overruled else []
        )
        if overruled:
            assert "ValueError: mine" in warnings(rollout.trace)[0]


EVENTS = ("runtime.start", "task.setup", "harness.setup", "session.open", "segment", "model", "finalize", "score.good")


INTERRUPTED = [
    pytest.param(
        event,
        kind,
        grouped,
        id=f"{event}, {kind.__name__}{', in a group' * grouped}",
    )
    for event, kind, grouped in product(EVENTS, (KeyboardInterrupt, SystemExit), (False, True))
]


@pytest.mark.parametrize(("event", "kind", "grouped"), INTERRUPTED)
async def test_an_interrupt_out_of_foreign_code_is_a_cancellation_and_comes_out_bare(
    event: str, kind: type[BaseException], grouped: bool
) -> None:
    async def act() -> None:
        await trio.lowlevel.checkpoint()
        interrupt = kind("stop it")
        raise BaseExceptionGroup("several", [ValueError("too"), interrupt]) if grouped else interrupt

    world = World(script={event: act})
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with pytest.raises(kind) as raised:
            await whole(rollout)
        assert raised.value.args == ("stop it",)
        assert rollout.state == "aborted"
    kept = [f"{error.type}: {error.message}" for error in rollout.trace.errors] + warnings(
        rollout.trace, "after_cancel"
    )
    assert len(kept) == grouped
    assert all("ValueError: too" in text for text in kept)
    if event != "score.good":  # a signal's failure stands (L63)
        assert rollout.trace.errors == []
    assert rollout.trace.stop_condition in ("cancelled", "agent_completed")
    assert world.unreleased() == []


@pytest.mark.parametrize("verb", ["open", "step", "close"])
async def test_a_caller_that_is_cancelled_before_the_call_starts_nothing(verb: str) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        for before in ("open", "step", "close"):
            if before == verb:
                break
            await getattr(rollout, before)()
        began = list(world.began)
        with trio.CancelScope() as scope:
            scope.cancel()
            await getattr(rollout, verb)()
        assert scope.cancelled_caught
        assert rollout.state == "aborted"
    new = world.began[len(began) :]
    assert not {"runtime.start", "segment", "finalize", "score.good"} & set(new)


def _deaf() -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    async def swallow_and_work() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(20)

    async def swallow_and_raise() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("instead") from None

    async def swallow_and_hold() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            await trio.lowlevel.cancel_shielded_checkpoint()

    yield "works on", swallow_and_work
    yield "raises its own", swallow_and_raise
    yield "returns", swallow_and_hold


@pytest.mark.parametrize("event", ["runtime.start", "task.setup", "segment", "finalize", "score.good"])
@pytest.mark.parametrize(("how", "act"), list(_deaf()))
async def test_code_that_swallows_its_interruption_has_been_interrupted_all_the_same(
    event: str, how: str, act: Callable[[], Awaitable[object]]
) -> None:
    trace = await play(World(script={event: act}), timeouts=BOUNDS)
    assert "timed_out" in [taken.trigger for taken in trace.transitions]
    assert trace.transitions[-1].target == "failed"
    assert [message for message in warnings(trace, "after_timeout") if "instead" in message] == (
        ["ValueError: instead"] if how == "raises its own" else []
    )


async def test_an_exception_that_loses_to_a_cancellation_is_a_warning_once() -> None:
    async def instead() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ExceptionGroup("two", [ValueError("one"), KeyError("two")]) from None

    async def drive(rollout: Rollout) -> None:
        with trio.move_on_after(1) as scope:
            await rollout.open()
        assert scope.cancelled_caught

    trace = await play(World(script={"task.setup": instead}), drive=drive)
    assert (trace.errors, warnings(trace, "after_cancel")) == ([], ["ValueError: one", "KeyError: 'two'"])
    assert trace.stop_condition == "cancelled"


async def test_a_stray_cancelled_of_the_model_is_a_failed_call() -> None:
    trace = await play(World(script={"model": stray}))
    assert error_types(trace) == ["ProviderError"]


async def test_a_base_exception_of_nobodys_is_an_ordinary_failure() -> None:
    class Odd(BaseException):
        pass

    for event, kind in (("task.setup", "TaskError"), ("segment", "HarnessError"), ("finalize", "TaskError")):
        trace = await play(World(script={event: raises(Odd, "odd")}))
        assert error_types(trace) == [kind]
        assert "Odd: odd" in trace.errors[0].message

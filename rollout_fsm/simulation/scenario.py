"""What a scenario says: one rollout, the attempts at it, and everything that the outside world does in it. Records
only, nothing runs here.

All times are seconds of the virtual clock. The defaults are those of a world in which nothing takes time and nothing
fails. How a file becomes these records is in `reading`.
"""

import math
from collections.abc import Mapping
from typing import Literal, NewType

from attrs import evolve, field, fields, frozen

from rollout_fsm.limits import RolloutLimits, RolloutPolicy, RolloutTimeouts
from rollout_fsm.messages import JSON, FinishReason
from rollout_fsm.retry import RetryPolicy
from rollout_fsm.simulation.faults import ModelError, ScriptedError
from rollout_fsm.simulation.trigger import Seconds, Trigger

Delay = NewType("Delay", float)
"""Seconds, or `"forever"`: infinite."""
Count = NewType("Count", int)
"""A whole number of at least 0."""
Name = NewType("Name", str)
"""Text that is not empty."""
EarlyTrigger = NewType("EarlyTrigger", Trigger)
"""A trigger that may be before the rollout."""
Triggers = NewType("Triggers", tuple[Trigger, ...])
"""One trigger or a list of them."""

AT_ONCE = Seconds(0.0)
NOW = Delay(0.0)
FOREVER = Delay(math.inf)

Mode = Literal["run", "interaction", "manual"]
Side = Literal["request", "response"]
Verb = Literal["open", "step", "close", "cancel", "fail"]


@frozen(kw_only=True)
class Hook:
    """Something that is called once: it takes its time, then it fails if it is to."""

    delay: Delay = NOW
    error: ScriptedError | None = None
    ignore_cancel: bool = False
    """Whether it swallows an interruption, and goes on to its end at once."""


@frozen(kw_only=True)
class TaskScript:
    """The task's row, and whether somebody else opens the conversation (for mode `manual`)."""

    prompt: str | None = "hello"
    system_prompt: str | None = None
    has_user: bool = False


@frozen(kw_only=True)
class RuntimeScript:
    """The box."""

    start: Hook = Hook()
    stop: Hook = Hook()
    alive: bool = True
    """Whether it answers when it is probed after a non-zero exit."""


@frozen(kw_only=True)
class ToolScript:
    """A tool server."""

    name: Name
    start: Hook = Hook()
    stop: Hook = Hook()


@frozen(kw_only=True)
class Turn:
    """A model call: what the model answers, and what the harness does about it."""

    input_tokens: Count = Count(10)
    output_tokens: Count = Count(5)
    usage: bool = True
    delay: Seconds = AT_ONCE
    error: ModelError | None = None
    error_times: Count | None = None
    """How many calls fail before one succeeds; None: all."""
    retries: Count = Count(0)
    """How often the harness repeats a call that was answered with 429 or 5xx."""
    text: str | None = None
    finish_reason: FinishReason | None = None
    tool_call: bool = False
    rewind_to: Count | None = None
    """The call sends only so many messages of the conversation, which goes on from there."""
    hang_up: Seconds | None = None
    """The harness gives the call up so long after it made it."""


OnError = Literal["exit", "swallow", "continue"]


@frozen(kw_only=True)
class Segment:
    """One run of the harness program: it keeps the conversation, and each of its calls sends all of it.

    After an answered call the reply is appended, then `result k.i` if it calls a tool, else `observation k.i` if
    another turn follows (k the segment, i the turn, from 0).
    """

    turns: tuple[Turn, ...] = ()
    """The model calls, in order."""
    delay: Seconds = AT_ONCE
    """Before the first call."""
    tail_delay: Seconds = AT_ONCE
    """After the last."""
    exit_code: int = 0
    """When it got through its calls."""
    on_error: OnError | None = None
    """After a call that was not answered with 200: exit with 1 (also the default), exit with 0, or go on."""
    exit_error: ScriptedError | None = None
    """Raised at the end instead of exiting."""
    raw_exit_error: ScriptedError | None = None
    """Raised by the session once the program has ended, however it did."""
    ignore_cancel: bool = False
    """An interruption makes it exit with 0 at once."""
    unkillable: bool = False
    """Its processes survive being killed, if the segment is left early (L13)."""
    ignore_refusal: bool = False
    """After a refused call it never exits; it makes no further one, but those that are under way are answered."""
    parallel: bool = False
    """All calls at once, call i on a branch of its own that ends in `subtask i`; it exits when all are answered: with 1
    if one failed and `on_error` is not given, else with 0."""
    exit_after: Seconds | None = None
    """With `parallel`: it exits so long after the first call, whatever is in flight."""
    stagger: Seconds = AT_ONCE
    """With `parallel`: call i is made i times so long after the first."""
    late_call_after: Seconds | None = None
    """A process that it left behind makes one more call, so long after the segment ended."""
    user_message: str | None = None
    """What the user says to open it; `user k` if it is not given, and nothing where the prompt opens it."""


@frozen(kw_only=True)
class Stop:
    """A `@stop` of the task."""

    boundary: Literal["trace", "request", "response"]
    name: Name
    fire_at_turn: int = 1
    """It is due once so many turns are committed, or on the request or response of that turn; then it takes its time,
    and raises or returns. Before, it returns false."""
    priority: int = 0
    raises: ScriptedError | None = None
    returns: JSON = True
    delay: Delay = NOW


Action = Literal["rewrite", "observe", "raise", "add_message", "rewrite_history"]


@frozen(kw_only=True)
class Intercept:
    """An `@intercept` of the task."""

    boundary: Side
    name: Name
    at_turn: int = 1
    """The turn that it acts on; the opening prompt belongs to turn 1, a user's message to the turn that it opens."""
    priority: int = 0
    action: Action = "rewrite"
    """`rewrite`: the last user message, or the reply. `rewrite_history`: the first user message. `add_message`: one
    more user message. `observe`: nothing. `raise`: `raises`."""
    text: str = "[rewritten]"
    raises: ScriptedError = field(factory=lambda: ScriptedError.read("ValueError"))
    delay: Delay = NOW


@frozen
class Value:
    """What a signal returns: a number, a mapping of names to numbers, or something that is neither."""

    returned: float | str | Mapping[str, float] = 1.0


@frozen(kw_only=True)
class Signal:
    """A reward or a metric."""

    name: Name
    value: Value = Value()
    weight: float = 1.0
    delay: Delay = NOW
    error: ScriptedError | None = None
    ignore_cancel: bool = False


@frozen(kw_only=True)
class CallerStop:
    """Another task calls `rollout.stop(condition)`."""

    at: EarlyTrigger
    condition: Name


@frozen(kw_only=True)
class OtherCall:
    """Another task calls a verb of the same rollout."""

    at: Trigger
    verb: Verb


@frozen(kw_only=True)
class UserFailure:
    """The user fails after a segment."""

    after: Count
    error: ScriptedError


@frozen(kw_only=True)
class Manual:
    """What the driver does in mode `manual` beside the usual."""

    keep_stepping: bool = False
    """A step for each segment, whatever open and step returned."""
    step_before_open: bool = False
    bare_step: bool = False
    """One more step, without words, right after open."""
    step_after_close: bool = False
    """What these three raise is noted, and the driver goes on."""
    close_twice: bool = False
    close_without_open: bool = False
    """Neither open nor step is called."""
    abort_instead_of_close: bool = False
    """`cancel()`, then `close()`."""
    stamp_completed: bool = True
    """`stop("agent_completed")` before `close()`, if the exchange is waiting."""


@frozen
class Backoff:
    """A number of seconds, which the policy doubles and spreads, or an array: exactly what comes before each retry, the
    last of it before all further ones."""

    seconds: tuple[float, ...]
    exact: bool

    def pause(self, retry: int) -> float:
        """Seconds before a retry, 1 for the first."""
        return self.seconds[:retry][-1]


DOUBLED = Backoff((1.0,), exact=False)


@frozen(kw_only=True)
class RetryScript:
    """A `RetryPolicy`: `engine.run` plays the rollout, with as many attempts as that allows."""

    max_retries: int = 0
    include: tuple[Name, ...] | None = None
    exclude: tuple[Name, ...] = ()
    backoff: Backoff = DOUBLED
    max_backoff: float = 60.0

    def policy(self) -> RetryPolicy:
        """The policy. Raises TypeError and ValueError for what makes none."""
        return RetryPolicy(
            max_retries=self.max_retries,
            include=self.include,
            exclude=self.exclude,
            backoff=self.backoff.pause if self.backoff.exact else self.backoff.seconds[0],
            max_backoff=self.max_backoff,
        )


@frozen(kw_only=True)
class Attempt:
    """What goes otherwise in one attempt; what is not given goes as the scenario says."""

    runtime: RuntimeScript | None = None
    setup: Hook | None = None
    harness_setup: Hook | None = None
    session_open: Hook | None = None
    segments: tuple[Segment, ...] | None = None
    finalize: Hook | None = None
    session_close: Hook | None = None
    cleanup: Hook | None = None


@frozen(kw_only=True)
class Scenario:
    """One rollout under scripted conditions."""

    name: str | None = None
    about: str | None = None
    mode: Mode = "run"
    """`run`: open, one step, close. `interaction`: the driver is the user, with a turn for each segment until one gets
    no reply. `manual`: open, a step for each segment while the exchange goes on, close."""
    task: TaskScript = TaskScript()
    runtime: RuntimeScript = RuntimeScript()
    setup: Hook = Hook()
    """Of the task."""
    harness_setup: Hook = Hook()
    tools: tuple[ToolScript, ...] = ()
    """Served one after the other."""
    session_open: Hook = Hook()
    timeouts: RolloutTimeouts = field(factory=RolloutTimeouts)
    policy: RolloutPolicy = field(factory=RolloutPolicy)
    limits: RolloutLimits = field(factory=RolloutLimits)
    segments: tuple[Segment, ...] = ()
    """One for each step; past the end they are empty."""
    stops: tuple[Stop, ...] = ()
    intercepts: tuple[Intercept, ...] = ()
    rewards: tuple[Signal, ...] = ()
    metrics: tuple[Signal, ...] = ()
    harness_metrics: tuple[Signal, ...] = ()
    finalize: Hook = Hook()
    session_close: Hook = Hook()
    close_error: ScriptedError | None = None
    """Short for `session_close.error`; None once the scenario is read. So are the next two."""
    cleanup: Hook = Hook()
    cleanup_error: ScriptedError | None = None
    runtime_stop_error: ScriptedError | None = None
    borrowed_runtime: bool = False
    """The rollout is placed into a running box that the caller owns."""
    owner_stops_runtime_at: EarlyTrigger | None = None
    cancel_at: Triggers = Triggers(())
    """The task that drives is cancelled, several times if there are several."""
    caller_stop: CallerStop | None = None
    other_calls: tuple[OtherCall, ...] = ()
    fail_between_segments: UserFailure | None = None
    """In an interaction its body raises, by hand the driver calls `fail()`; after what it spends between segments."""
    between_segments: Seconds = AT_ONCE
    """What the driver spends after each segment that went on (in an interaction: that got a reply)."""
    manual: Manual = Manual()
    retry: RetryScript | None = None
    attempts: tuple[Attempt, ...] = ()
    """With `retry`: one for each attempt; past the end everything goes as the scenario says. A phase that a trigger
    names is the first one of its name in whatever attempt."""

    def in_attempt(self, number: int) -> "Scenario":
        """The scenario as it is played in an attempt, 1 for the first."""
        if number > len(self.attempts):
            return self
        otherwise = self.attempts[number - 1]
        given = {each.name: getattr(otherwise, each.name) for each in fields(Attempt)}
        return evolve(self, **{name: script for name, script in given.items() if script is not None})

    def segment(self, number: int) -> Segment:
        """The script of a segment; past the end an empty one."""
        return self.segments[number] if number < len(self.segments) else Segment()

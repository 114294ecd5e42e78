"""The words a declaration may use: triggers, activities and their outcomes, kinds, groups, spans, bounds.

A state file that uses any other word is refused when it is loaded, and P7 holds the other way round: no trigger, guard
or activity is left unused by the states. Guards have a file of their own, since they also have a meaning in words.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Kind = Literal["resting", "active", "shielded", "final"]
Group = Literal["opening", "exchange", "closing", "failure", "cancellation"]
Span = Literal["boot", "setup", "agent", "finalize", "scoring"]
Bound = Literal["boot", "setup", "agent", "finalize", "scoring"]
Activity = Literal["boot", "setup", "segment", "close", "finalize", "score", "release"]
Trigger = Literal[
    "open", "step", "stop", "close", "cancel", "errored", "timed_out",
    "booted", "ready", "refused", "segment_ended", "closed", "finalized", "scored", "released",
]  # fmt: skip
Condition = Literal[
    "error", "cancelled", "user_closed", "agent_completed", "no_progress", "agent_timeout", "(given)",
]  # fmt: skip
ErrorUse = Literal["record", "warn", "raise"]
Firer = Literal["caller", "activity", "both"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""resting: waits for the caller. active: one activity, whose outcome is the next trigger. shielded: active, and not
interrupted. final: the end."""

GROUPS: tuple[Group, ...] = get_args(Group)
"""The parts of the lifecycle, in order; a label for diagrams and tables, without behaviour."""

SPANS: tuple[Span, ...] = get_args(Span)
"""The timing spans of a trace that a state may belong to (L80)."""

BOUNDS: tuple[Bound, ...] = get_args(Bound)
"""The timeouts that may bound a state (L2). Shielded states have none: each of their steps has its own bound (L55)."""

GIVEN: Condition = "(given)"
"""As a row's `sets`: the stop condition that came with the trigger, a limit's or a stop's name (L16)."""

CONDITIONS: tuple[Condition, ...] = get_args(Condition)
"""The stop conditions that a row may set, if none is set yet (L17)."""

ERROR_USES: tuple[ErrorUse, ...] = get_args(ErrorUse)
"""What a row does with the errors that came with the trigger. record: they go on the trace. warn: they become a warning
of kind `after_stop`. raise: `RuntimeLifetimeError` is raised to the caller and nothing is recorded (L3)."""

SAME = "(same)"
"""As a row's `to`: an answer, not a move. It is not recorded, runs nothing and touches no sealed trace (L83)."""

TRIGGERS: Mapping[Trigger, Firer] = MappingProxyType(
    {
        "open": "caller",
        "step": "caller",
        "stop": "caller",
        "close": "caller",
        "cancel": "caller",
        "errored": "both",
        "booted": "activity",
        "ready": "activity",
        "refused": "activity",
        "segment_ended": "activity",
        "closed": "activity",
        "finalized": "activity",
        "scored": "activity",
        "released": "activity",
        "timed_out": "activity",
    }
)
"""Every trigger and who fires it. `errored` comes from activities and from the owner's `fail` (L43). A cancellation
that an activity meets is the caller's trigger too (L14a)."""

ACTIVITIES: Mapping[Activity, tuple[Trigger, ...]] = MappingProxyType(
    {
        "boot": ("booted", "timed_out", "errored"),
        "setup": ("ready", "timed_out", "errored"),
        "segment": ("refused", "segment_ended", "timed_out", "errored"),
        "close": ("closed",),
        "finalize": ("finalized", "timed_out", "errored"),
        "score": ("scored", "timed_out", "errored"),
        "release": ("released",),
    }
)
"""Every activity and the outcomes it can have, besides being cancelled; of those that end it, success comes first."""

ONGOING: frozenset[Trigger] = frozenset({"refused"})
"""Outcomes that an activity has while it goes on running: the state changes under it, and the next one has it too."""

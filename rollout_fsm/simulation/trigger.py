"""When something happens in a scenario: at a time of the virtual clock, or some time after a phase is entered.

A phase is a word, or a word with the name or the number of what is meant (`tool_start:shell`, `segment:0`). Words that
are no phase are faults of the file: a trigger that can never be reached would do nothing, without a sound.
"""

from typing import NewType

from attrs import frozen

from rollout_fsm.machine.exact import Fault, suggestion

Seconds = NewType("Seconds", float)
"""A stretch or a point of virtual time, finite, not negative."""
Phase = NewType("Phase", str)

AT_ONCE = Seconds(0.0)

BEFORE = "before"
"""Before the rollout is opened; for `caller_stop` and `owner_stops_runtime_at` alone."""
PLAIN = (
    "boot",
    "setup",
    "harness_setup",
    "session_open",
    "session_close",
    "finalize",
    "scoring",
    "cleanup",
    "runtime_stop",
)
NUMBERED = ("segment", "turn", "between")
NAMED = ("tool_start", "tool_stop", "score")
_SEPARATOR = {"tool_start": ":", "tool_stop": ":", "score": "."}


@frozen(kw_only=True)
class Trigger:
    """A point in time: `time`, or `after` seconds after `phase` is entered for the first time."""

    time: Seconds | None = None
    phase: Phase | None = None
    after: Seconds = AT_ONCE

    @property
    def before(self) -> bool:
        """Whether it is before the rollout is opened."""
        return self.phase == BEFORE


def read_phase(word: str) -> Phase:
    """A phase, if there is one of this name. Raises `Fault`."""
    if word in PLAIN or word == BEFORE:
        return Phase(word)
    kind, colon, rest = word.partition(":")
    if colon and kind in NUMBERED:
        if not (rest.isascii() and rest.isdigit()):
            raise Fault(f"the phase {word!r} needs a number after the colon, as in '{kind}:0'")
        return Phase(f"{kind}:{int(rest)}")
    for kind in NAMED:
        start = f"{kind}{_SEPARATOR[kind]}"
        if word.startswith(start):
            if word == start:
                raise Fault(f"the phase {word!r} needs a name at its end")
            return Phase(word)
    raise Fault(f"no phase {word!r}{suggestion(word, [*PLAIN, *(f'{kind}:0' for kind in NUMBERED), *_EXAMPLES])}")


_EXAMPLES = [f"{kind}{_SEPARATOR[kind]}NAME" for kind in NAMED]


def check(trigger: Trigger, *, early: bool) -> Trigger:
    """The trigger, if it says one point in time. `early`: whether it may be before the rollout. Raises `Fault`."""
    if (trigger.time is None) is (trigger.phase is None):
        raise Fault("a trigger has either a time or a phase")
    if trigger.phase is None and trigger.after:
        raise Fault("`after` belongs to a phase; add it to the time")
    if trigger.before and not early:
        raise Fault(f"no phase {BEFORE!r} here: nothing can happen before the rollout")
    if trigger.before and trigger.after:
        raise Fault(f"the phase {BEFORE!r} has no `after`")
    return trigger


def named(trigger: Trigger) -> tuple[str, str] | None:
    """The kind of phase and the name in it, where it has a name."""
    for kind in NAMED:
        start = f"{kind}{_SEPARATOR[kind]}"
        if trigger.phase is not None and trigger.phase.startswith(start):
            return kind, trigger.phase.removeprefix(start)
    return None

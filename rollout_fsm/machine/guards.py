"""The guards: named predicates over a rollout's facts. Testing a guard is reading the fact of its name, nothing else.

Guards are pure: they are the only foreign code that runs inside a firing, and a firing stays atomic because they change
nothing. Names stay names; no expression is ever read from a declaration.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Protocol

from attrs import frozen

GuardName = Literal[
    "opens_conversation", "has_user", "runtime_lost", "stop_requested", "model_failed", "agent_survives", "advanced",
    "expiry_stops", "no_progress_fails",
]  # fmt: skip


class Facts(Protocol):
    """What the guards ask of a rollout, under the names of `GUARDS`.

    Each is read during a firing, must be exactly a bool, and reading it changes nothing.
    """

    @property
    def opens_conversation(self) -> bool: ...
    @property
    def has_user(self) -> bool: ...
    @property
    def runtime_lost(self) -> bool: ...
    @property
    def stop_requested(self) -> bool: ...
    @property
    def model_failed(self) -> bool: ...
    @property
    def agent_survives(self) -> bool: ...
    @property
    def advanced(self) -> bool: ...
    @property
    def expiry_stops(self) -> bool: ...
    @property
    def no_progress_fails(self) -> bool: ...


@frozen(kw_only=True)
class Guard:
    """A guard in words: `holds` says when it is true, `fails` what a refusal says when it is false."""

    name: GuardName
    holds: str
    fails: str

    def test(self, facts: Facts) -> bool:
        """The fact of this name. Raises TypeError if it is not exactly a bool: nobody should guess what "no" means."""
        verdict = getattr(facts, self.name)
        if verdict is True or verdict is False:
            return verdict
        raise TypeError(f"the fact {self.name!r} must be True or False, not {verdict!r} (a {type(verdict).__name__})")


GUARDS: Mapping[GuardName, Guard] = MappingProxyType(
    {
        guard.name: guard
        for guard in (
            Guard(
                name="opens_conversation",
                holds="the task has a prompt, or a user will open the exchange",
                fails="the task has no prompt, and no user will open the exchange",
            ),
            Guard(
                name="has_user",
                holds="the exchange has a user",
                fails="the exchange has no user",
            ),
            Guard(
                name="runtime_lost",
                holds="the runtime is borrowed and its owner has stopped it",
                fails="the runtime is the rollout's own, or its owner has not stopped it",
            ),
            Guard(
                name="stop_requested",
                holds="a stop condition is set",
                fails="no stop condition is set",
            ),
            Guard(
                name="model_failed",
                holds="the last model call of this segment failed and no later one succeeded",
                fails="no model call of this segment failed without a later one succeeding",
            ),
            Guard(
                name="agent_survives",
                holds="the harness's processes could not be killed when the segment was left",
                fails="none of the harness's processes outlived the segment against the engine's will",
            ),
            Guard(
                name="advanced",
                holds="a reply was committed during the segment",
                fails="no reply was committed during the segment",
            ),
            Guard(
                name="expiry_stops",
                holds="by policy an expired agent budget stops the rollout",
                fails="by policy an expired agent budget fails the rollout",
            ),
            Guard(
                name="no_progress_fails",
                holds="by policy a segment without a turn is a failure of the harness",
                fails="by policy a segment without a turn is a stop",
            ),
        )
    }
)
"""Every guard, by name."""

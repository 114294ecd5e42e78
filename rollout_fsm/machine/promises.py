"""What the rules promise of a whole life, told from what happened in it, without a look at any row.

A history remembers what the promises need: whether something failed or a cancellation came, whether a turn was refused,
how far the work has got. The search compares it with where the declared rows have led.
"""

from collections.abc import Iterator

from attrs import frozen

from rollout_fsm.machine.declaration import State
from rollout_fsm.machine.lives import SEGMENT_ENDS, Life
from rollout_fsm.machine.vocabulary import Activity

WORK: tuple[Activity, ...] = ("boot", "setup", "segment", "close", "finalize", "score", "release")
"""The activities of a life that is completed, in order (L5, L50); a segment may come many times, or never."""

ENDINGS = ("completed", "failed", "aborted")
"""The final states, the stronger ones last: a failure ends a good life, a cancellation ends any (L70)."""


@frozen(kw_only=True, cache_hash=True)
class History:
    """What has happened to a rollout so far, as far as it was promised to matter."""

    ending: str = "completed"
    """The final state in which this life has to end unless more happens."""
    condition: str | None = None
    """The stop condition that it has to have by now; the first one stands (L17)."""
    refused: bool = False
    """A turn of this segment was refused: how the harness ends it does not matter (L16)."""
    begun: int = 0
    """How many of the activities in `WORK` have begun, those that were left out included."""
    early: Activity | None = None
    """An activity that began before its turn, or again."""


def told(history: History, life: Life, state: State, trigger: str, then: State) -> History:
    """The history after this trigger came in this state and situation, and led to another state, or back to this."""
    ending = max(history.ending, _ending(history, life, state, trigger), key=ENDINGS.index)
    condition = history.condition or life.condition or _condition(history, life, state, trigger, ending)
    began = then.activity if then.activity != state.activity and then.group not in ("failure", "cancellation") else None
    return History(
        ending=ending,
        condition=condition,
        refused=trigger == "refused" or (history.refused and state.activity == then.activity),
        begun=max(history.begun, WORK.index(began) + 1) if began else history.begun,
        early=history.early or (began if began and not _due(history, began) else None),
    )


def _due(history: History, activity: Activity) -> bool:
    place, segment = WORK.index(activity), WORK.index("segment")
    again = place == segment and history.begun == segment + 1
    none = place == segment + 1 and history.begun == segment
    return place == history.begun or again or none


def _ending(history: History, life: Life, state: State, trigger: str) -> str:
    if trigger == "cancel":
        return "aborted"
    if state.initial:  # never opened, or opened on a runtime that is gone; a task that cannot begin is its own failure
        lost = trigger == "close" or (trigger == "open" and life.runtime_lost)
        return "aborted" if lost else "completed" if trigger == "open" and life.opens_conversation else "failed"
    if state.activity is None:
        return "failed" if trigger == "errored" else "completed"
    if trigger in ("timed_out", "errored") and life.runtime_lost:
        return "aborted"
    return "failed" if _fails(history, life, state, trigger) else "completed"


def _fails(history: History, life: Life, state: State, trigger: str) -> bool:
    if state.activity != "segment":
        return trigger in ("timed_out", "errored")
    if trigger in SEGMENT_ENDS and life.agent_survives:
        return True
    if history.refused:
        return False
    if trigger == "segment_ended":
        silent = not life.advanced and life.condition is None
        return life.model_failed or (silent and life.no_progress_fails)
    return trigger == "errored" or (trigger == "timed_out" and not life.expiry_stops)


def _condition(history: History, life: Life, state: State, trigger: str, ending: str) -> str | None:
    if trigger == "cancel":
        return "cancelled"
    if ending != history.ending:
        return "error" if ending == "failed" else None
    if trigger == "close" and history.ending == "completed":
        return "user_closed" if life.has_user else "agent_completed"
    if trigger == "segment_ended" and not life.advanced:
        return "no_progress"
    return "agent_timeout" if trigger == "timed_out" else None


def broken(history: History, life: Life, state: State) -> Iterator[str]:
    """What does not hold, of what must hold of every rollout that is in this state with this history."""
    if life.condition != history.condition:
        yield f"has the stop condition {life.condition}, and must have {history.condition} (L16, L17, L53)"
    if state.group == "closing" and history.ending != "completed":
        yield f"goes on to be scored, and must end {history.ending} (L13, L20, L52)"
    elif state.kind == "final" and state.name != history.ending:
        yield f"ends here, and must end {history.ending} (L52, L70)"
    if state.name == "waiting" and life.condition:
        yield "may go on although a stop condition is set (L22)"
    if life.failed != (history.ending == "failed") and history.ending != "aborted":
        yield f"has {'an' if life.failed else 'no'} error on the trace (L7, L40)"
    if history.early:
        yield f"began the activity {history.early!r} out of turn; the order is {', '.join(WORK)} (L5, L50)"
    if state.name == "completed" and history.begun < len(WORK):
        yield f"is completed without the activity {WORK[history.begun]!r} (L50)"
    if state.group == "closing" and life.condition is None:
        yield "the exchange is over without a stop condition (L52)"

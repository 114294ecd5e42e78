"""The facts of a rollout that the machine's guards ask for, read off its plan and its world. Pure: nothing here changes
anything."""

from attrs import frozen

from rollout_fsm.outcome import bare
from rollout_fsm.world import World


@frozen
class RolloutFacts:
    """The nine guards, as properties of the same names."""

    world: World

    @property
    def opens_conversation(self) -> bool:
        """The task has a prompt, or a user will open the exchange (L1)."""
        return self.world.plan.has_user or bool(self.world.plan.task.opening)

    @property
    def has_user(self) -> bool:
        """The exchange has a user (L53)."""
        return self.world.plan.has_user

    @property
    def runtime_lost(self) -> bool:
        """The runtime is borrowed and its owner has stopped it (L3)."""
        try:
            return self.world.runtime_lost
        except BaseException as raised:  # noqa: BLE001  (only an interrupt comes; it goes on bare, without its group)
            interrupted = bare(raised)
        try:
            raise interrupted
        finally:
            del interrupted  # a frame that keeps an exception which it raises is kept by it

    @property
    def stop_requested(self) -> bool:
        """A stop condition is set (L22)."""
        return self.world.trace.stop_condition is not None

    @property
    def model_failed(self) -> bool:
        """The last model call of this segment failed and no later one succeeded (L20)."""
        return self.world.segment is not None and bool(self.world.segment.model_failures)

    @property
    def agent_survives(self) -> bool:
        """The harness's processes could not be killed when the segment was left (L13)."""
        return self.world.segment is not None and self.world.segment.survives

    @property
    def advanced(self) -> bool:
        """A reply was committed during the segment (L19)."""
        return self.world.segment is not None and self.world.trace.num_turns > self.world.segment.turns_before

    @property
    def expiry_stops(self) -> bool:
        """By policy an expired agent budget is a stop (L13)."""
        return self.world.plan.policy.agent_expiry == "stop"

    @property
    def no_progress_fails(self) -> bool:
        """By policy a segment without a turn is a failure (L19)."""
        return self.world.plan.policy.no_progress == "fail"

"""What the machine raises: a trigger that the state does not take."""


class IllegalTransition(Exception):  # noqa: N818  (names the situation; the field says it so)
    """The state does not take this trigger now. Nothing has changed (L11).

    The message names the state, the trigger, what would be legal there and, for refused guards, their words.
    """


class RolloutBusyError(IllegalTransition):
    """Another call of the same rollout is in progress; one caller drives (L23). Nothing has changed."""

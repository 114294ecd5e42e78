"""Plays that once went wrong, or were once judged wrongly: each is played again, in every profile."""

import pytest

from tests.cancellation.plan import Plan
from tests.cancellation.sweeps import check

KEPT = (
    "failing interrupt@10",  # the error of a call that was given up as it failed kept the rollout (L84)
    "failing interrupt@11",
    "overtaken scope@19 interrupt@21",  # a second Ctrl-C ended the waiting for the end of another task's call (L70)
    "unmanaged scope@1 interrupt@9",  # Ctrl-C when the engine has nothing left that it could strike
    "overtaken waiter@16",  # who waits to close is struck as it is about to go on
    "overtaken waiter@7 waiter@16",  # and when it waits no longer
)


@pytest.mark.parametrize("text", KEPT)
def test_what_went_wrong_once_goes_right(text: str) -> None:
    check([Plan.read(text)])

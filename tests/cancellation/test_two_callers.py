"""Another task waits in `close()` when the interruption comes: a waiter's cancellation is only its own (L23), that of
whoever drives is the rollout's, and each is told what concerns it."""

import pytest

from tests.cancellation.cases import WAITED, Case
from tests.cancellation.plan import MEANS, Means
from tests.cancellation.sweeps import again, check, once
from tests.profiles import sample

ANYBODY: tuple[Means, ...] = (*MEANS, "waiter")


@pytest.mark.parametrize("means", ANYBODY)
@pytest.mark.parametrize("case", WAITED.values(), ids=WAITED)
def test_interrupted_while_another_waits_to_close_each_is_told_its_own(case: Case, means: Means) -> None:
    check(sample(once(case, means), dev=3, ci=60))


@pytest.mark.parametrize("second", ANYBODY)
@pytest.mark.parametrize("first", ANYBODY)
@pytest.mark.parametrize("case", WAITED.values(), ids=WAITED)
def test_interrupted_one_after_the_other_each_is_told_its_own(case: Case, first: Means, second: Means) -> None:
    firsts = sample(once(case, first), dev=1, ci=4)
    check(sample(list(again(firsts, second)), dev=1, ci=6))

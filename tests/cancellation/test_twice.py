"""Interrupted once more at any later point, by the same means or by others, nothing is cut short (L70)."""

import pytest

from tests.cancellation.cases import DRIVEN, Case
from tests.cancellation.plan import MEANS, Means
from tests.cancellation.sweeps import again, check, once
from tests.profiles import sample


@pytest.mark.parametrize("second", MEANS)
@pytest.mark.parametrize("first", MEANS)
@pytest.mark.parametrize("case", DRIVEN.values(), ids=DRIVEN)
def test_interrupted_a_second_time_nothing_is_cut_short(case: Case, first: Means, second: Means) -> None:
    plans, turn = once(case, first), 3 * MEANS.index(second)  # so that each second means meets other first points
    firsts = sample(plans[turn:] + plans[:turn], dev=1, ci=6)
    check(sample(list(again(firsts, second)), dev=1, ci=12))


@pytest.mark.parametrize(
    "means", [("scope", "interrupt", "scope"), ("cancel", "scope", "interrupt"), ("interrupt", "interrupt", "cancel")]
)
def test_a_third_interruption_changes_nothing_either(means: tuple[Means, Means, Means]) -> None:
    first, second, third = means
    pairs = list(again(sample(once(DRIVEN["plain"], first), dev=1, ci=6), second))
    check(sample(list(again(sample(pairs, dev=1, ci=12), third)), dev=1, ci=30))

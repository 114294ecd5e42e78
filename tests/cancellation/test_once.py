"""Interrupted at its 1st, 2nd, 3rd … scheduling point, a rollout ends released, sealed and right (L70-L72)."""

import pytest

from tests.cancellation.cases import DRIVEN, Case
from tests.cancellation.plan import MEANS, Means
from tests.cancellation.sweeps import check, once
from tests.profiles import sample


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("case", DRIVEN.values(), ids=DRIVEN)
def test_interrupted_at_any_point_everything_is_released_and_the_trace_is_right(case: Case, means: Means) -> None:
    plans = once(case, means)
    assert len(plans) > 20
    check(sample(plans, dev=4, ci=len(plans)))

"""Driven, or ended, by the engine: `run`, `interaction`, `run_all`, two side by side, one that its owner forgot (L75).

Two rollouts side by side are interrupted together, and each is released for itself.
"""

import pytest

from tests.cancellation.cases import ENGINES, Case
from tests.cancellation.plan import Means
from tests.cancellation.sweeps import again, check, once
from tests.profiles import sample

STRUCK: tuple[Means, ...] = ("scope", "interrupt")
"""Who drives through the engine has no rollout to cancel."""


@pytest.mark.parametrize("means", STRUCK)
@pytest.mark.parametrize("case", ENGINES.values(), ids=ENGINES)
def test_interrupted_at_any_point_every_rollout_of_the_engine_is_released(case: Case, means: Means) -> None:
    plans = once(case, means)
    assert len(plans) > 25
    check(sample(plans, dev=3, ci=len(plans)))


def test_cancelled_from_elsewhere_a_rollout_without_a_block_is_ended_all_the_same() -> None:
    check(sample(once(ENGINES["unmanaged"], "cancel"), dev=5, ci=60))


@pytest.mark.parametrize("second", STRUCK)
@pytest.mark.parametrize("first", STRUCK)
@pytest.mark.parametrize("case", ENGINES.values(), ids=ENGINES)
def test_interrupted_a_second_time_none_of_them_is_cut_short(case: Case, first: Means, second: Means) -> None:
    firsts = sample(once(case, first), dev=1, ci=6)
    check(sample(list(again(firsts, second)), dev=1, ci=12))

"""With any step of the release failing, hanging, deaf or interrupting, interrupted at any point: every other step is
attempted once, in reverse order; what failed is said once and changes nothing, unless it interrupts (L51, L55,
L70, L71, L74)."""

import pytest

from tests.cancellation.cases import DRIVEN, Case
from tests.cancellation.plan import MEANS, Plan
from tests.cancellation.sweeps import breakages, check, once
from tests.profiles import sample


@pytest.mark.parametrize("case", DRIVEN.values(), ids=DRIVEN)
def test_with_a_broken_step_of_the_release_every_other_one_is_attempted_once(case: Case) -> None:
    every = breakages(case)
    assert len(every) > 30
    tried = sample(every, dev=8, ci=len(every))
    check(Plan(case.name, broken=broken) for broken in tried)
    check(sample([plan for broken in tried for means in MEANS for plan in once(case, means, broken)], dev=8, ci=60))

"""The real driver, started in any state, called by anyone in any order, with parties that fail, hang or answer: what it
does is judged by the rules (`rules.py`), and together the runs take every row that a driver can take.
"""

from collections import Counter

import pytest
from hypothesis import example, given

from tests.found import Found
from tests.properties.plans import Plan, plans, seeds
from tests.properties.rules import TABLE, broken
from tests.properties.stage import play

pytestmark = [pytest.mark.hypothesis, pytest.mark.usefixtures("no_log")]

Row = tuple[str, str, str | None]
ROWS: list[Row] = [(source, trigger, guard) for (source, trigger), rows in TABLE.items() for guard, _, _ in rows]
UNDRIVEN: set[Row] = {
    ("stopping", "segment_ended", "agent_survives"),  # a harness that ended by itself is not killed
    ("aborted", "errored", None),  # in a final state fail() is only logged
}
"""Rows that the declaration has so that it is total, and that no driver takes."""


def test_every_run_is_as_the_rules_say_and_together_they_take_every_row() -> None:
    taken: Counter[Row] = Counter()

    @given(plans())
    def run(plan: Plan) -> None:
        stage = play(plan)
        taken.update((one.row.source, one.row.trigger, one.row.guard) for one in stage.fired if one.row is not None)
        if faults := broken(stage):
            raise Found(faults, example=repr(plan), story=stage.story)

    for seed in reversed([*seeds()]):  # the outermost is tried first
        run = example(seed)(run)
    run()
    assert set(ROWS) - taken.keys() == UNDRIVEN

"""What happens when …: a reviewer who reads only `diagrams/transitions.md` finds the answers, and they are right.

The page in the repository is read as text, as the reviewer does. What it says is compared with the oracle, the table
written out a second time, followed here by other means than the page's; the four questions of the review are asked by
name.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve, frozen

from rollout_fsm.machine import load_machine
from rollout_fsm.machine.declaration import declare
from rollout_fsm.machine.endings_file import endings
from rollout_fsm.machine.questions import QUESTIONS, answers
from rollout_fsm.machine.table import render_table
from tests.machine import oracle

PAGE = (Path(__file__).resolve().parents[2] / "diagrams" / "transitions.md").read_text(encoding="utf-8")

TABLE = oracle.table()
SUCCEEDS = {
    "booting": "booted",
    "setup": "ready",
    "stepping": "segment_ended",
    "stopping": "segment_ended",
    "closing": "closed",
    "finalizing": "finalized",
    "scoring": "scored",
    "releasing": "released",
    "discarding": "released",
    "aborting": "released",
}
KINDS = {cells[0]: cells[1] for cells in map(oracle.cells, oracle.STATES.strip().splitlines())}
BOUNDS = {cells[0]: cells[4] for cells in map(oracle.cells, oracle.STATES.strip().splitlines())}
CLOSE = "close → closing, closed → finalizing, finalized → scoring, scored → releasing, released → completed"
DISCARD = "close → discarding, released → failed"


@frozen(kw_only=True)
class Line:
    """One line of an answer, for one state; `condition` is empty where the state stays."""

    state: str
    guard: str = ""
    then: str
    condition: str = ""
    scored: str = ""


def plain(markdown: str) -> str:
    return re.sub(r"\[([^]]*)\]\(#[^)]*\)", r"\1", markdown).replace("`", "").replace("**", "").strip()


def tables(page: str) -> dict[str, list[dict[str, str]]]:
    """The lines under every heading of the index, by their columns."""
    index = page.split("## What happens when …\n")[1].split("\n## ")[0]
    found = {}
    for part in index.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        head, _, *lines = [plain(line)[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
        found[title] = [dict(zip(map(str.strip, head), map(str.strip, line), strict=True)) for line in lines]
    return found


def told(title: str, page: str = PAGE) -> set[Line]:
    return {
        Line(
            state=state,
            guard=line.get("if", ""),
            then=line["then"],
            condition=line.get("stop condition", ""),
            scored=line.get("scored", ""),
        )
        for line in tables(page)[title]
        for state in line["in"].split(", ")
    }


# The same by the oracle


def onward(state: str) -> Iterator[tuple[str, str]]:
    while KINDS[state] != "final":
        trigger = "close" if KINDS[state] == "resting" else SUCCEEDS[state]
        state = next(to for guard, to, _ in TABLE[state, trigger] if guard is None)
        yield trigger, state


@cache
def unsettled() -> set[str]:
    """The states that a rollout can be in without a stop condition, found by going everywhere with and without one."""
    seen, queue = {("created", False)}, [("created", False)]
    while queue:
        name, settled = queue.pop()
        for (source, trigger), rows in TABLE.items():
            for guard, to, sets in rows:
                there = (to, settled or bool(sets) or trigger == "stop" or guard == "stop_requested")
                if source == name and to != "(same)" and there not in seen:
                    seen.add(there)
                    queue.append(there)
    return {name for name, settled in seen if not settled}


def line(state: str, triggers: str, guard: str, to: str, sets: str | None) -> Line:
    if to == "(same)":
        return Line(state=state, guard=guard, then=f"{triggers}: stays")
    steps = [(triggers, to), *onward(to)]
    given = sets or ("(given)" if triggers == "stop" or guard == "stop_requested" else None)
    passes = [name for _, name in steps]
    return Line(
        state=state,
        guard=guard,
        then=", ".join(f"{trigger} → {name}" for trigger, name in steps),
        condition=given if given and state in unsettled() else "as it was",
        scored="in part" if state == "scoring" else "yes" if "releasing" in passes else "no",
    )


def expected(triggers: tuple[str, ...], states: set[str], fails: str | None) -> set[Line]:
    """The rows of these triggers in these states, without those that need what fails."""
    found = set()
    for (state, trigger), rows in TABLE.items():
        if trigger in triggers and state in states:
            left = [row for row in rows if fails is None or row[0] != fails]
            for place, (guard, to, sets) in enumerate(left):
                found.add(line(state, trigger, guard or ("else" if place else ""), to, sets))
    return found


def held() -> set[Line]:
    shielded = [name for name, kind in KINDS.items() if kind == "shielded"]
    found = set()
    for state in shielded:
        steps: list[tuple[str, str]] = []
        for trigger, to in onward(state):
            steps.append((trigger, to))
            if KINDS[to] == "active":
                steps += [("cancel", "aborting"), ("released", "aborted")]
                break
        scored = {"closing": "no", "releasing": "yes"}.get(state, "as it was")
        then = ", ".join(f"{trigger} → {name}" for trigger, name in steps)
        found.add(Line(state=state, then=f"held back; {then}", condition="as it was", scored=scored))
    return found


def test_the_answers_are_those_of_the_table() -> None:
    everywhere = set(KINDS)
    agent = {name for name, bound in BOUNDS.items() if bound == "agent"}
    stops = {
        line(state, trigger, guard, to, sets)
        for (state, trigger), rows in TABLE.items()
        for guard, to, sets in rows
        if guard == "stop_requested"
    }
    lost = {
        line(state, triggers, guard, to, sets)
        for (state, trigger), rows in TABLE.items()
        for guard, to, sets in rows
        if guard == "runtime_lost"
        for triggers in ["open" if state == "created" else "timed_out or errored"]
    }
    assert {title: told(title) for title in tables(PAGE)} == {
        "The agent budget runs out": expected(("timed_out",), agent, "runtime_lost"),
        "A limit is reached or a stop fires": expected(("refused", "stop"), everywhere, None) | stops,
        "The harness does nothing": expected(("segment_ended",), {"stepping"}, "advanced"),
        "It is cancelled": expected(("cancel",), everywhere, None) | held(),
        "Something fails": expected(("errored",), everywhere, "runtime_lost"),
        "Another time bound runs out": expected(("timed_out",), everywhere - agent, "runtime_lost"),
        "The owner has stopped a borrowed runtime": lost,
        "It is closed": expected(("close",), everywhere, None),
    }


# The review


def test_what_happens_when_the_agent_budget_runs_out() -> None:
    said = told("The agent budget runs out")
    failed = Line(
        state="stepping", guard="else", then=f"timed_out → failing, {DISCARD}", condition="error", scored="no"
    )
    assert failed in said
    assert evolve(failed, guard="expiry_stops", then=f"timed_out → stopped, {CLOSE}", condition="agent_timeout",
                  scored="yes") in said  # fmt: skip
    assert Line(state="stopping", guard="else", then=f"timed_out → stopped, {CLOSE}", condition="as it was",
                scored="yes") in said  # fmt: skip


def test_what_happens_when_a_stop_fires() -> None:
    said = told("A limit is reached or a stop fires")
    end = {"condition": "(given)", "scored": "yes"}
    refused = f"refused → stopping, segment_ended → stopped, {CLOSE}"
    assert Line(state="stepping", then=refused, **end) in said
    assert Line(state="waiting", then=f"stop → stopped, {CLOSE}", **end) in said
    assert Line(state="stepping", guard="stop_requested", then=f"segment_ended → stopped, {CLOSE}", **end) in said


def test_what_happens_when_the_harness_does_nothing() -> None:
    said = told("The harness does nothing")
    assert Line(state="stepping", guard="else", then=f"segment_ended → stopped, {CLOSE}", condition="no_progress",
                scored="yes") in said  # fmt: skip
    assert Line(state="stepping", guard="no_progress_fails", then=f"segment_ended → failing, {DISCARD}",
                condition="error", scored="no") in said  # fmt: skip


def test_what_happens_when_it_is_cancelled_while_scoring() -> None:
    (said,) = [each for each in told("It is cancelled") if each.state == "scoring"]
    assert said == Line(state="scoring", then="cancel → aborting, released → aborted", condition="as it was",
                        scored="in part")  # fmt: skip


def test_a_shielded_state_holds_a_cancellation_back() -> None:
    said = {each.state: each.then for each in told("It is cancelled")}
    assert said["closing"] == "held back; closed → finalizing, cancel → aborting, released → aborted"
    assert said["releasing"] == "held back; released → completed"


def test_every_link_leads_to_its_rows() -> None:
    anchors = set(re.findall(r'<a id="([^"]*)">', PAGE))
    slugs = {
        re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    links = set(re.findall(r"\]\(#([^)]*)\)", PAGE))
    assert links <= anchors | slugs
    for name in KINDS:
        (first,) = [row for row in PAGE.splitlines() if f'<a id="from-{name}">' in row]
        assert first.startswith(f'| <a id="from-{name}"></a>`{name}` | `')


def test_an_index_that_a_reader_takes_in_within_two_minutes() -> None:
    assert len(QUESTIONS) <= 8
    assert sum(map(len, tables(PAGE).values())) <= 50


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_an_answer_follows_a_row_that_is_turned_elsewhere(question: object) -> None:
    """No answer is written by hand: turn the first row of each, and the page says otherwise."""
    shipped = load_machine()
    (asked,) = [each for each in QUESTIONS if each is question]
    found = next(answer for answer in answers(shipped, asked) if answer.path)
    first = found.path[0]
    target = "waiting" if first.target != "waiting" else "failing"
    state = shipped.state(first.source)
    turned = evolve(state, rows=tuple(evolve(row, to=target) if row is first else row for row in state.rows))
    states = [turned, *(each for each in shipped.states.values() if each.name != state.name)]
    page = render_table(declare(states), endings())
    then = [each.then for each in told(asked.title, page) if each.state == state.name]
    assert any(f"→ {target}, close → " in each for each in then)
    assert told(asked.title, page) != told(asked.title)

"""The diagrams: fresh in the repository, complete, and in agreement with the declaration they are drawn from."""

import builtins
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from attrs import evolve

from rollout_fsm.machine import Declaration, load_machine
from rollout_fsm.machine.declaration import declare
from rollout_fsm.machine.dot import render_dot
from rollout_fsm.machine.endings_file import endings
from rollout_fsm.machine.export import SVG, diagram_texts, stale_diagrams, write_diagrams
from rollout_fsm.machine.mermaid import render_mermaid
from rollout_fsm.machine.picture import Hop, Picture, draw
from rollout_fsm.machine.table import render_table

SHIPPED = load_machine()
FOLDER = Path(__file__).resolve().parents[2] / "diagrams"


def moves(declaration: Declaration) -> set[tuple[str, str, str]]:
    return {(row.source, row.trigger, row.to) for row in declaration.rows if not row.same}


@pytest.fixture
def picture() -> Picture:
    return draw(SHIPPED)


def cancelled_while_scoring() -> list[Hop]:
    steps = [
        ("open", "booting"),
        ("booted", "setup"),
        ("ready", "waiting"),
        ("step", "stepping"),
        ("segment_ended", "waiting"),
        ("close", "closing"),
        ("closed", "finalizing"),
        ("finalized", "scoring"),
        ("cancel", "aborting"),
        ("released", "aborted"),
    ]
    sources = ["created", *(target for _, target in steps)]
    return [
        Hop(trigger=trigger, source=source, target=target, at=index / 2)
        for index, (source, (trigger, target)) in enumerate(zip(sources, steps, strict=False))
    ]


def test_the_exported_files_match_the_declaration() -> None:
    assert stale_diagrams(FOLDER) == []


def test_every_move_is_on_an_arrow_and_every_arrow_is_a_move(picture: Picture) -> None:
    drawn = {
        (source, trigger, arrow.target)
        for arrow in picture.arrows
        for source in arrow.leaves
        for label in arrow.labels
        for trigger in label.triggers
        if not arrow.lifted or trigger == "cancel" or SHIPPED.state(source).kind == "active"
    }
    assert drawn == moves(SHIPPED)


def test_arrows_that_a_whole_group_shares_are_lifted_to_it(picture: Picture) -> None:
    lifted = {(arrow.source, arrow.target): arrow for arrow in picture.arrows if arrow.lifted}
    assert set(lifted) == {
        ("opening", "aborting"),
        ("opening", "failing"),
        ("exchange", "aborting"),
        ("exchange", "failing"),
        ("closing", "aborting"),
        ("closing", "discarding"),
    }
    assert lifted["exchange", "aborting"].leaves == {"waiting", "stepping", "stopping"}
    assert lifted["closing", "aborting"].leaves == {"stopped", "finalizing", "scoring"}
    assert [str(label) for label in lifted["closing", "aborting"].labels] == [
        "cancel",
        "timed_out, errored [runtime_lost]",
    ]
    assert [str(label) for label in lifted["opening", "failing"].labels] == ["timed_out, errored [else]"]


def test_an_arrow_that_one_member_lacks_stays_with_the_others() -> None:
    scoring = SHIPPED.state("scoring")
    lacking = evolve(scoring, rows=tuple(row for row in scoring.rows if row.trigger != "cancel"))
    edited = draw(declare([lacking, *(state for state in SHIPPED.states.values() if state.name != "scoring")]))
    sources = {arrow.source for arrow in edited.arrows if any("cancel" in label.triggers for label in arrow.labels)}
    assert {"stopped", "finalizing"} <= sources
    assert not sources & {"closing", "scoring"}


def test_answers_are_in_the_table_only() -> None:
    texts = diagram_texts(SHIPPED)
    assert [name for name, text in texts.items() if "(same)" in text] == ["transitions.md"]
    assert all(arrow.source != arrow.target for arrow in draw(SHIPPED).arrows)


def test_mermaid_groups_the_states_marks_their_kinds_and_the_ends(picture: Picture) -> None:
    lines = render_mermaid(picture).splitlines()
    assert lines[:5] == ["---", 'title: "The rollout lifecycle"', "---", "stateDiagram-v2", "  direction TB"]
    assert "  [*] --> created" in lines
    assert '  state "closing" as closing_group {' in lines
    assert "  closing_group --> aborting: cancel<br>timed_out,<br>errored<br>[runtime_lost]" in lines
    assert [line for line in lines if line.endswith("--> [*]")] == [
        "  completed --> [*]",
        "  failed --> [*]",
        "  aborted --> [*]",
    ]
    for state in SHIPPED.states.values():
        assert f"    {state.name}" in lines
        assert f"  class {state.name} {state.kind}" in lines
    identifiers = [line.split()[-2] for line in lines if line.startswith("  state ")]
    assert not set(identifiers) & set(SHIPPED.states)


def test_a_path_is_numbered_and_timed_on_both_pictures() -> None:
    shown = draw(SHIPPED, cancelled_while_scoring(), title='of "t-1"\n<b>')
    dot = render_dot(shown)
    assert re.search(r'created -> booting \[label=" \(1\) open, 0\.000 s\\l" color="#b03a00"', dot)
    assert "of &quot;t-1&quot;\n&lt;b&gt;" in dot
    mermaid = render_mermaid(shown).splitlines()
    assert mermaid[1] == 'title: "of \\"t-1\\"\\n<b>"'
    assert "    waiting --> stepping: (4) step, 1.500 s" in mermaid
    visited = {line.split()[1] for line in mermaid if line.endswith(" visited")}
    assert visited == shown.visited
    assert "failing" not in visited


def test_a_step_along_the_arrow_of_a_group_says_from_which_state_and_needs_no_arrow_of_its_own() -> None:
    shown, plain = draw(SHIPPED, cancelled_while_scoring()), draw(SHIPPED)
    told = "(9) cancel in scoring, 4.000 s"
    assert re.search(rf'label=" {re.escape(told)}\\l" color="#b03a00".* ltail=cluster_closing', render_dot(shown))
    assert f"  closing_group --> aborting: {told}" in render_mermaid(shown).splitlines()
    for render in (render_dot, render_mermaid):
        assert render(shown).count(" -> ") == render(plain).count(" -> ")
        assert render(shown).count(" --> ") == render(plain).count(" --> ")


def test_a_path_that_the_machine_could_not_have_gone_is_drawn_as_it_is_recorded() -> None:
    shown = draw(SHIPPED, [Hop(trigger="closed", source="created", target="completed", at=12.34)])
    assert 'created -> completed [label=" (1) closed, 12.3 s\\l"' in render_dot(shown)
    assert "  created --> completed: (1) closed, 12.3 s" in render_mermaid(shown).splitlines()


def test_of_many_steps_along_one_arrow_the_first_and_the_last_are_told() -> None:
    turn = [("step", "waiting", "stepping"), ("segment_ended", "stepping", "waiting")]
    hops = [Hop(trigger=trigger, source=source, target=target) for trigger, source, target in turn * 50]
    told = ["(1) step", "(3) step", "(5) step", "(7) step", "… 45 more", "(99) step"]
    assert f"    waiting --> stepping: {'<br>'.join(told)}" in render_mermaid(draw(SHIPPED, hops)).splitlines()


def test_a_step_without_a_time_shows_its_trigger_alone() -> None:
    shown = draw(SHIPPED, [Hop(trigger="open", source="created", target="booting")])
    assert 'label=" (1) open\\l"' in render_dot(shown)


@pytest.mark.parametrize(
    ("trigger", "target", "fault"),
    [
        ("open", "limbo", "goes over states that are not declared: limbo"),
        ("open\n  class x y", "booting", "takes triggers that are not declared: open\n  class x y"),
    ],
)
def test_a_path_by_names_that_do_not_exist_is_refused(trigger: str, target: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        draw(SHIPPED, [Hop(trigger=trigger, source="created", target=target)])


def test_the_table_has_every_row_with_its_reason_in_the_order_in_which_rows_are_asked() -> None:
    text = render_table(SHIPPED, endings())
    section = text.split("## Transitions")[1].split("## Guards")[0]
    listed = [line.split(" | ") for line in section.splitlines() if re.match(r"\| (`|<a)", line)]
    plain = [[re.sub(r"<[^>]*>", "", cell).strip("|` ") for cell in cells] for cells in listed]
    assert plain == [
        [row.source, row.trigger, row.guard or "", row.to, row.sets or "", row.error or "", row.reason or ""]
        for row in SHIPPED.rows
    ]


def test_writing_makes_everything_fresh_and_a_second_time_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "diagrams"
    assert [name for name, _ in stale_diagrams(folder)] == [*diagram_texts(SHIPPED), SVG]
    assert write_diagrams(folder) == [*diagram_texts(SHIPPED), SVG]
    assert stale_diagrams(folder) == []
    assert write_diagrams(folder) == []
    svg = ET.fromstring((folder / SVG).read_text())
    words = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert set(SHIPPED.states) <= words
    assert {"[opens_conversation]", "/ agent_timeout", "[else]"} <= {(word or "").strip() for word in words}


def test_the_labels_of_arrows_lie_above_every_line_and_the_picture_is_as_wide_as_a_page(tmp_path: Path) -> None:
    write_diagrams(tmp_path)
    text = (tmp_path / SVG).read_text()
    svg = ET.fromstring(text)
    (labels,) = [group for group in svg.iter("{http://www.w3.org/2000/svg}g") if group.get("id") == "labels"]
    assert len(list(labels)) > len(draw(SHIPPED).arrows)
    assert text.index('<g id="labels">') > text.rindex("<path")
    assert not re.search(r'class="edge">(?:(?!</g>).)*<text', text, re.DOTALL)
    assert int(svg.get("width", "")) < 1020
    (box,) = [each for each in svg.iter("{http://www.w3.org/2000/svg}polygon") if each.get("fill") == "white"]
    assert box.get("stroke") == "none"


def test_an_edited_state_makes_the_files_that_show_it_stale_and_says_how(tmp_path: Path) -> None:
    write_diagrams(tmp_path)
    waiting = SHIPPED.state("waiting")
    turned = evolve(
        waiting, rows=tuple(evolve(row, to="failing") if row.trigger == "stop" else row for row in waiting.rows)
    )
    edited = declare([turned, *(state for state in SHIPPED.states.values() if state.name != "waiting")])
    stale = dict(stale_diagrams(tmp_path, edited))
    assert set(stale) == {*diagram_texts(SHIPPED), SVG}
    assert "-  waiting --> stopped: stop" in stale["lifecycle.mmd"].splitlines()
    assert "+  waiting --> failing: stop<br>errored" in stale["lifecycle.mmd"].splitlines()
    assert "rendered from another lifecycle.dot" in stale[SVG]


def test_a_reason_that_changes_leaves_the_pictures_fresh(tmp_path: Path) -> None:
    write_diagrams(tmp_path)
    created = SHIPPED.state("created")
    reworded = evolve(created, rows=tuple(evolve(row, reason="because") for row in created.rows))
    edited = declare([reworded, *(state for state in SHIPPED.states.values() if state.name != "created")])
    assert [name for name, _ in stale_diagrams(tmp_path, edited)] == ["lifecycle.scxml", "transitions.md"]


def test_a_file_whose_line_endings_were_changed_is_stale(tmp_path: Path) -> None:
    write_diagrams(tmp_path)
    path = tmp_path / "transitions.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert stale_diagrams(tmp_path) == [("transitions.md", "the line endings differ")]


def test_a_picture_that_is_cut_short_and_a_file_that_nothing_exports_are_stale(tmp_path: Path) -> None:
    write_diagrams(tmp_path)
    whole = (tmp_path / SVG).read_text()
    (tmp_path / SVG).write_text(whole[: len(whole) // 2])
    (tmp_path / "lifecycle.png").write_bytes(b"")
    (tmp_path / "notes.md").write_text("somebody else's")
    stale = dict(stale_diagrams(tmp_path))
    assert set(stale) == {SVG, "lifecycle.png"}
    assert "not whole" in stale[SVG]
    assert stale["lifecycle.png"] == "nothing exports it; delete it"
    assert write_diagrams(tmp_path) == [SVG]


def test_without_graphviz_the_texts_are_written_and_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without_graphviz(name: str, *args: object, **kwargs: object) -> object:
        if name == "pygraphviz":
            raise ImportError(name)
        return original(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_graphviz)
    with pytest.raises(RuntimeError, match=re.escape("pip install 'rollout-fsm[diagrams]'")):
        write_diagrams(tmp_path)
    assert [name for name, _ in stale_diagrams(tmp_path)] == [SVG]

"""`rollout-fsm diagram`: files that are written, compared, and one rollout's path."""

import sys

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_show import written
from tests.reports.made import made


@pytest.fixture
def drawn(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A folder with fresh diagrams; the SVG is not rendered, so that no extra is needed."""
    monkeypatch.setattr("rollout_fsm.machine.export.render_svg", lambda dot: "<svg/>")
    monkeypatch.setattr("rollout_fsm.cli.diagram.render_svg", lambda dot: "<svg/>")
    assert cli("diagram").code == 0
    return cli


def test_the_diagrams_are_written_once_and_then_fresh(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygraphviz")
    first, second, checked = cli("diagram"), cli("diagram"), cli("diagram", "--check")

    names = sorted(path.name for path in (cli.folder / "diagrams").iterdir())
    assert sorted(first.out.splitlines()) == sorted(f"written: diagrams/{name}" for name in names)
    assert "lifecycle.mmd" in names
    assert (second.code, second.out) == (0, "diagrams: everything is fresh\n")
    assert (checked.code, checked.out) == (0, "diagrams: everything is fresh\n")


def test_a_stale_diagram_is_shown_with_what_differs_and_nothing_is_written(drawn: CommandLine) -> None:
    path = drawn.folder / "diagrams" / "lifecycle.mmd"
    stale = path.read_text().replace("waiting", "loitering")
    path.write_text(stale)

    said = drawn("diagram", "--check")

    assert said.code == 1
    assert "diagrams/lifecycle.mmd is stale\n" in said.out
    assert "loitering" in said.out
    assert path.read_text() == stale


def test_missing_diagrams_are_stale(cli: CommandLine) -> None:
    (cli.folder / "empty").mkdir()

    said = cli("diagram", "--check", "-o", "empty")

    assert said.code == 1
    assert "empty/lifecycle.mmd is stale\nthe file is missing\n" in said.out
    assert list((cli.folder / "empty").iterdir()) == []


def test_where_there_is_no_folder_there_is_nothing_to_check(cli: CommandLine) -> None:
    said = cli("diagram", "--check", "-o", "nowhere")

    assert (said.code, said.out) == (2, "")
    assert "nowhere: no such folder; --check compares the drawings of a checkout with its states" in said.err
    assert not (cli.folder / "nowhere").exists()


def test_the_path_of_a_trace_is_printed_with_its_times(cli: CommandLine) -> None:
    said = cli("diagram", "--trace", f"{written(cli.folder, made())}#t-1")

    assert said.code == 0
    title = "rollout t-1: completed, stop condition agent_completed"
    assert said.out.startswith(f'---\ntitle: "{title}"\n---\n')
    for number, (trigger, at) in enumerate((("open", 0), ("booted", 1), ("ready", 2)), 1):
        assert f"({number}) {trigger}, {at:.3f} s" in said.out


@pytest.mark.parametrize("suffix", [".mmd", ".dot", ".svg"])
def test_the_path_of_a_trace_is_written_in_the_kind_that_the_file_names(suffix: str, drawn: CommandLine) -> None:
    said = drawn("diagram", "--trace", f"{written(drawn.folder, made())}#t", "-o", f"path{suffix}")

    assert (said.code, said.out) == (0, f"written: path{suffix}\n")
    assert (drawn.folder / f"path{suffix}").read_text()


def test_a_path_over_states_that_are_not_declared_cannot_be_drawn(cli: CommandLine) -> None:
    trace = made(path=("open:created>nirvana",))

    said = cli("diagram", "--trace", f"{written(cli.folder, trace)}#t-1")

    assert said.code == 2
    assert "the trace t-1 cannot be drawn: the path goes over states that are not declared: nirvana" in said.err


def test_a_folder_that_cannot_be_written_is_refused(cli: CommandLine) -> None:
    cli.file("file", "")

    said = cli("diagram", "-o", "file/diagrams")

    assert said.code == 2
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{file}", "--trace: '{file}' names no trace; write TRACES#ID"),
        ("{file}#", "--trace: '{file}#' names no trace; write TRACES#ID"),
        ("#t-1", "--trace: '#t-1' names no trace; write TRACES#ID"),
        ("{file}#x", "{file}: no trace's id begins with 'x'; `rollout-fsm show {file}` lists them"),
        ("{file}#t", "{file}: 2 traces have an id that begins with 't': t-1, t-2"),
        ("nowhere#t", "there is no file nowhere"),
    ],
)
def test_a_trace_that_is_not_there_or_not_alone_is_refused_in_one_line(
    reference: str, said: str, cli: CommandLine
) -> None:
    file = written(cli.folder, made(), made(id="t-2"))

    answer = cli("diagram", "--trace", reference.format(file=file))

    assert (answer.code, answer.out) == (2, "")
    assert said.format(file=file) in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_trace_that_records_no_transitions_has_no_path(cli: CommandLine) -> None:
    trace = made()
    trace.transitions.clear()

    said = cli("diagram", "--trace", f"{written(cli.folder, trace)}#t-1")

    assert said.code == 2
    assert "the trace t-1 has no transitions" in said.err


def test_a_picture_of_another_kind_is_refused(cli: CommandLine) -> None:
    said = cli("diagram", "--trace", f"{written(cli.folder, made())}#t-1", "-o", "path.png")

    assert said.code == 2
    assert "path.png is no kind of picture; there are .mmd, .dot, .svg" in said.err


def test_what_the_check_compares_and_what_a_trace_draws_are_not_asked_for_at_once(cli: CommandLine) -> None:
    said = cli("diagram", "--check", "--trace", "traces.jsonl#t")

    assert said.code == 2
    assert "choose one" in said.err


def test_without_graphviz_the_texts_are_written_and_checked_and_one_line_says_what_to_install(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)

    said, checked = cli("diagram"), cli("diagram", "--check")

    assert said.code == 2
    assert said.err == (
        "rollout-fsm: rendering an SVG needs Graphviz: pip install 'rollout-fsm[diagrams]'; "
        "the texts in diagrams are up to date\n"
    )
    assert (checked.code, checked.err) == (1, "")
    assert checked.out.startswith("diagrams/lifecycle.svg is stale\nthe file is missing\n1 stale;")


def test_a_folder_in_place_of_a_diagram_is_told_in_one_line(drawn: CommandLine) -> None:
    (drawn.folder / "diagrams" / "transitions.md").unlink()
    (drawn.folder / "diagrams" / "transitions.md").mkdir()

    said = drawn("diagram", "--check")

    assert said.code == 2
    assert said.err == "rollout-fsm: diagrams/transitions.md: cannot be read: Is a directory\n"

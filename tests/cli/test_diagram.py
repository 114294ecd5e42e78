"""`rollout-fsm diagram`: files that are written, compared, and one rollout's path."""

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
    said = cli("diagram", "--check", "-o", "nowhere")

    assert said.code == 1
    assert "nowhere/lifecycle.mmd is stale\nthe file is missing\n" in said.out
    assert not (cli.folder / "nowhere").exists()


def test_the_path_of_a_trace_is_printed_with_its_times(cli: CommandLine) -> None:
    said = cli("diagram", "--trace", f"{written(cli.folder, made())}#t-1")

    assert said.code == 0
    assert said.out.startswith("---\ntitle: ")
    for number, (trigger, at) in enumerate((("open", 0), ("booted", 1), ("ready", 2)), 1):
        assert f"{number}" in said.out
        assert f"{trigger}, {at:.2f} s" in said.out


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

"""A file of traces that ends anywhere is gone on with: no rest of a line is lost, and none is glued to."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.output import TORN, TRACES
from rollout_fsm.trace_json import trace_to_json
from rollout_fsm.traces_file import read_traces
from tests.profiles import sample
from tests.test_output import finished, ids, resumed

TWO = "".join(trace_to_json(finished(name, index=index)) + "\n" for index, name in enumerate(("t1", "t2")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torn")


@pytest.mark.usefixtures("no_log")
def test_a_file_that_was_cut_anywhere_loses_its_last_line_alone_and_nothing_is_glued_to_it(place: Path) -> None:
    whole, first = TWO.encode(), TWO.index("\n") + 1
    (place / TRACES).touch()
    for end in sample(range(len(whole) + 1), dev=60, ci=120):
        (place / TRACES).write_bytes(whole[:end])
        (place / TORN).unlink(missing_ok=True)
        folder = resumed(place)
        before = (end >= first - 1) + (end >= len(whole) - 1)
        assert len(folder.written()) == before, end
        folder.append(finished("t3"))
        folder.close()
        assert ids(place / TRACES) == [*["t1", "t2"][:before], "t3"], end
        kept = whole[:end] if before == 2 or end == first - 1 else whole[: first if before else 0]
        torn = whole[len(kept) : end]
        assert ((place / TORN).read_bytes() if torn else b"") == (torn + b"\n" if torn else b""), end


@given(rest=st.binary(max_size=40), chunk=st.integers(1, 50))
@pytest.mark.usefixtures("no_log")
def test_no_rest_of_a_line_is_lost_or_glued_to(place: Path, rest: bytes, chunk: int) -> None:
    rest = rest.replace(b"\n", b"")
    (place / TRACES).write_bytes(TWO.encode() + rest)
    (place / TORN).write_bytes(b"earlier\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollout_fsm.traces_file.CHUNK", chunk)
        folder = resumed(place)
    folder.append(finished("t3"))
    folder.close()
    found = [trace.id for trace in read_traces(place / TRACES, on_fault=lambda *_: None)]
    assert found == ["t1", "t2", "t3"]
    in_file = (place / TRACES).read_bytes().splitlines(keepends=True)
    beside = (place / TORN).read_bytes()
    assert not rest or rest + b"\n" in (b"".join(in_file[2:-1]), beside.removeprefix(b"earlier\n"))

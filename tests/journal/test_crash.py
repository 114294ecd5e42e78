"""A process that is killed loses nothing that `durable` returned for."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rollout_fsm.journal import read_journal
from tests.profiles import sample

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", sample(range(20), dev=1, ci=2))
def test_what_was_durable_when_the_process_was_killed_is_there(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.journal.endless", str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        said = [child.stdout.readline().split() for _ in range(random.Random(seed).randrange(1, 300))]
        child.send_signal(signal.SIGKILL)
        said += [line.split() for line in child.stdout if line.endswith("\n")]
    attempts = {attempt.trace: attempt for attempt in read_journal(path).attempts}
    for what, name in said:
        attempt = attempts[name]
        assert [lease.name for lease in attempt.leases] == [name]
        if what == "scored":
            assert attempt.state == "releasing"
            assert attempt.snapshot is not None
            assert f'"id":"{name}"' in attempt.snapshot.trace

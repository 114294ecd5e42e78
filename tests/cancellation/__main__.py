"""Play one plan again, and say what was met and what was wrong: `python -m tests.cancellation 'tools scope@7'`."""

import sys

import tests.conftest  # noqa: F401  makes the schedule a fixed one
from tests.cancellation.plan import Plan
from tests.cancellation.playing import play
from tests.cancellation.verdict import explained, faults_of

stage = play(Plan.read(" ".join(sys.argv[1:])))
faults = faults_of(stage)
sys.stdout.write(explained(stage, faults or ["all is well"]) + "\n")
sys.exit(bool(faults))

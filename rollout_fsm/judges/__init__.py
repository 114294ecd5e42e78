"""Judges that are ready to use: a comparison with a reference answer, and a rubric of several criteria."""

from rollout_fsm.judges.reference import ReferenceJudge
from rollout_fsm.judges.rubric import Criterion, RubricJudge

__all__ = ["Criterion", "ReferenceJudge", "RubricJudge"]

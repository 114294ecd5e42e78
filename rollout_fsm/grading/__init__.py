"""How a model is asked for a verdict, and how its answer is read. No model is called here, and no trace is changed.

`template` is the question and `material` what is put into it; `choices` and `numbers` read a `verdict`.
"""

from rollout_fsm.grading.choices import Choices
from rollout_fsm.grading.material import BUILT_IN, OF_THE_ROLLOUT, Material, cut, task_field
from rollout_fsm.grading.numbers import Numbers
from rollout_fsm.grading.template import Template
from rollout_fsm.grading.verdict import NoVerdictError, Reader, Verdict

__all__ = [
    "BUILT_IN",
    "OF_THE_ROLLOUT",
    "Choices",
    "Material",
    "NoVerdictError",
    "Numbers",
    "Reader",
    "Template",
    "Verdict",
    "cut",
    "task_field",
]

"""How a model is asked for a verdict, and how its answer is read. No model is called here, and no trace is changed.

`template` is the question and `material` what is put into it; `choices` and `numbers` read a `verdict`. Each is
imported when a judge that asks a model is made: every rollout knows what a judge is, and few have one.
"""

from typing import TYPE_CHECKING

from rollout_fsm.lazy_names import lazy_names

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "BUILT_IN": "rollout_fsm.grading.material",
            "OF_THE_ROLLOUT": "rollout_fsm.grading.material",
            "Choices": "rollout_fsm.grading.choices",
            "Material": "rollout_fsm.grading.material",
            "NoVerdictError": "rollout_fsm.grading.verdict",
            "Numbers": "rollout_fsm.grading.numbers",
            "Reader": "rollout_fsm.grading.verdict",
            "Template": "rollout_fsm.grading.template",
            "Verdict": "rollout_fsm.grading.verdict",
            "cut": "rollout_fsm.grading.material",
            "task_field": "rollout_fsm.grading.material",
        },
    )

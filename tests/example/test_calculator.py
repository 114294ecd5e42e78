"""The example's calculator calculates, and does nothing else."""

import re

import pytest

from rollout_fsm.example.calculator import LONGEST, calculate
from rollout_fsm.example.program import Toolbox


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 * 23", 391),
        (" (12 - 5) * (3 + 6) ", 63),
        ("2 ** 32", 4294967296),
        ("-2 ** 2", -4),
        ("7 // 2 + 7 % 2 - +1", 3),
        ("1 / 4", 0.25),
        ("2 ** -1", 0.5),
        ("2 ** 4095", 2**4095),
        ("1 ** 999999999999", 1),
        ("1.5e3", 1500.0),
    ],
)
def test_arithmetic_is_calculated(expression: str, value: int | float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "not an arithmetic expression: ''"),
        ("(1 + 2", "not an arithmetic expression"),
        ("__import__('os').system('true')", "only numbers and"),
        ("x + 1", "only numbers and"),
        ("'a' * 3", "only numbers and"),
        ("True + 1", "only numbers and"),
        ("[1][0]", "only numbers and"),
        ("1 << 3", "only numbers and"),
        ("~1", "only numbers and"),
        ("1j", "only numbers and"),
        ("(-8) ** 0.5", "the result is no real number"),
        ("2 ** 4096", "the result is too large"),
        ("9 ** 9 ** 9 ** 9", "the result is too large"),
        ("(2 ** 4000) * (2 ** 4000)", "the result is too large"),
        ("1 + " * LONGEST + "1", f"at most {LONGEST} are taken"),
        ("(" * 95 + "1" + ")" * 95, None),
        ("(" * 150, "not an arithmetic expression"),
        ("-" * (LONGEST - 1) + "1", None),
    ],
)
def test_anything_else_is_refused_at_once(expression: str, why: str | None) -> None:
    if why is None:
        assert abs(calculate(expression)) == 1
        return
    with pytest.raises(ValueError, match=re.escape(why)):
        calculate(expression)


def test_a_program_without_tool_servers_says_so_to_the_model() -> None:
    toolbox = Toolbox(None)
    assert toolbox.offered == []
    assert toolbox.use("calculator", "{}") == "Error: there is no tool 'calculator'; there is none"

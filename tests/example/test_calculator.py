"""The example's calculator calculates, and does nothing else."""

import re

import pytest

from rollout_fsm.example.program import LONGEST, calculate, use_tool


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


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("calculator", '{"expression": "1 + 1"}', "2"),
        ("calculator", '{"expression": "10 / 0"}', "Error: ZeroDivisionError: division by zero"),
        ("calculator", '{"expression": "2.0 ** 9999"}', "Error: OverflowError: "),
        ("calculator", '{"expression": 3}', "Error: TypeError: "),
        ("calculator", '{"formula": "1"}', "Error: KeyError: 'expression'"),
        ("calculator", "[1]", "Error: TypeError: "),
        ("calculator", "1 + 1", "Error: JSONDecodeError: "),
        ("shell", "{}", "Error: there is no tool 'shell'; there is calculator"),
    ],
)
def test_whatever_is_wrong_with_a_call_is_its_result(name: str, arguments: str, result: str) -> None:
    assert use_tool(name, arguments).startswith(result)

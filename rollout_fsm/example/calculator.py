"""The example's tool server: a calculator.

It is served to each rollout by the engine, outside of the runtime in which the rollout's program runs.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rollout_fsm.toolset import Toolset, tool

LONGEST = 200
"""Characters that an expression may have."""
LARGEST = 4096
"""Bits that a whole number may have."""

OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class Calculator(Toolset):
    """One tool. What is wrong with an expression is told to the model, which decides what to do about that."""

    @tool
    def calculator(self, expression: str) -> str:
        """Evaluate an arithmetic expression, such as (2 + 3) * 4."""
        return str(calculate(expression))


def calculate(expression: str) -> int | float:
    """The value of an expression of numbers and + - * / // % **. Raises `ValueError` or `ArithmeticError`.

    It walks the syntax tree and runs nothing else; no expression takes long, however it is written.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression has {len(expression)} characters, at most {LONGEST} are taken")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an arithmetic expression: {expression!r}") from error
    return evaluate(tree.body)


def evaluate(node: ast.expr) -> int | float:
    """The value of a node of the syntax tree."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return small(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return small(OPERATORS[type(node.op)](evaluate(node.operand)))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = evaluate(node.left), evaluate(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and (left.bit_length() - 1) * right > LARGEST:
            raise ValueError(f"the result is too large: more than {LARGEST} bits")  # said before the work is done
        return small(OPERATORS[type(node.op)](left, right))
    raise ValueError(f"only numbers and + - * / // % ** ( ) can be calculated, not {ast.unparse(node)!r}")


def small(value: int | float | complex) -> int | float:
    """The value, if it is a real number of a size that can be shown."""
    if isinstance(value, complex):
        raise ValueError("the result is no real number")
    if isinstance(value, int) and value.bit_length() > LARGEST:
        raise ValueError(f"the result is too large: more than {LARGEST} bits")
    return value

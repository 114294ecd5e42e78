"""The harness program of the example: a chat loop with a calculator.

It imports the standard library only, nothing of the engine, and would run against any endpoint that speaks OpenAI's
chat completions.

    program.py conversation.json

The conversation is a JSON list of OpenAI messages. OPENAI_BASE_URL and OPENAI_API_KEY lead to the model. The last reply
goes to standard output. Exit status 1: the API refused or failed, and standard error says so in one line; 2: usage.
"""

import ast
import json
import operator
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 200
"""Characters that an expression may have."""
LARGEST = 4096
"""Bits that a whole number may have."""

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression, such as (2 + 3) * 4.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
            "additionalProperties": False,
        },
    },
}

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


class ApiError(Exception):
    """The API did not answer with a reply."""


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


def use_tool(name: str, arguments: str) -> str:
    """The result of a tool call, or what was wrong with it: the model decides what to do about that."""
    if name != "calculator":
        return f"Error: there is no tool {name!r}; there is calculator"
    try:
        return str(calculate(json.loads(arguments)["expression"]))
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        return f"Error: {type(error).__name__}: {error}"


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The model's next message. Raises `ApiError`."""
    body = {"model": os.environ.get("OPENAI_MODEL", "default"), "messages": messages, "tools": [CALCULATOR]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            reply: dict[str, Any] = json.load(answer)["choices"][0]["message"]
            return reply
    except urllib.error.HTTPError as error:
        raise ApiError(f"HTTP {error.code}: {said(error)}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ApiError(f"{type(error).__name__}: {error}") from error


def said(error: urllib.error.HTTPError) -> str:
    """What an API says in an error: its message if it has OpenAI's shape, else the reason."""
    try:
        return str(json.load(error)["error"]["message"])
    except (OSError, ValueError, LookupError, TypeError):
        return str(error.reason)


def main(arguments: list[str]) -> int:
    """Talk to the model until it calls no tool."""
    if len(arguments) != 1:
        sys.stderr.write("usage: program.py conversation.json\n")
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        messages = json.load(file)
    while True:
        try:
            reply = ask(messages)
        except ApiError as error:
            sys.stderr.write(f"program.py: the model did not answer: {error}\n")
            return 1
        messages.append(reply)
        calls = reply.get("tool_calls") or []
        if not calls:
            sys.stdout.write(f"{reply.get('content') or ''}\n")
            return 0
        for call in calls:
            result = use_tool(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

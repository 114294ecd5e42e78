"""The agents of these tests: harness programs with a small client, and what they may leave about.

The same tasks are run by a program in a process of its own and by a harness in this process, so that both ways to the
model are seen to behave alike.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

from attrs import frozen

from rollout_fsm import ChatHarness, Harness, LocalRuntime, ProgramHarness, Runtime, Task, Trace
from rollout_fsm.example import example_harness
from rollout_fsm.example.calculator import calculate

CLIENT = """
import json, os, socket, sys

HOST, PORT = os.environ["OPENAI_BASE_URL"].removeprefix("http://").removesuffix("/v1").split(":")

def post(messages):
    # One call: the status, and the document that came. A client of its own starts faster than the library's.
    body = json.dumps({"messages": messages}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: {HOST}\\r\\nContent-Length: {len(body)}\\r\\n"
    head += f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}\\r\\nConnection: close\\r\\n\\r\\n"
    with socket.create_connection((HOST, int(PORT))) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\\r\\n\\r\\n")
    return int(head.split()[1]), json.loads(body)

def ask(messages):
    # One turn: the reply joins the messages. The program ends where there is none.
    status, document = post(messages)
    if status != 200:
        sys.exit(f"HTTP {status}: {document['error']['message']}")
    messages.append(document["choices"][0]["message"])
    return messages[-1]["content"]
"""

TWO_TURNS = """
messages = [{"role": "user", "content": sys.argv[1]}]
ask(messages)
messages.append({"role": "user", "content": "more"})
ask(messages)
"""
"""Talks in two turns."""

QUIET = " >/dev/null 2>&1"
LEAVES_CHILDREN = "sleep 1000 & sleep 1000 & "
IGNORES_BEING_ASKED = "trap '' TERM HUP INT; sleep 1000 & sleep 1000 & "
DAEMONISES = "trap '' TERM HUP INT; (setsid sh -c 'sleep 1000 & exec sleep 1000' &) ; "

QUICK = partial(LocalRuntime, grace=0.05)
"""A box that does not wait long for what ignores being asked."""


def agent(body: str, *, before: str = "", env: dict[str, str] | None = None, multi_turn: bool = False) -> Harness:
    """A harness that runs shell commands, then becomes Python with the client and this body; the prompt is its
    argument.
    """
    return ProgramHarness(
        ["sh", "-c", before + 'exec "$0" -I -S agent.py "$1"', "{python}", "{prompt}"],
        files={"agent.py": CLIENT + body},
        env=env or {},
        multi_turn=multi_turn,
        name="agent",
    )


async def calculator(expression: Annotated[str, "such as (2 + 3) * 4"]) -> int | float:
    """Evaluate an arithmetic expression."""
    return calculate(expression)


HARNESSES: Mapping[str, Callable[[], Harness]] = {
    "program": example_harness,
    "in process": lambda: ChatHarness([calculator]),
}
"""The example's harness program, and the same loop in this process."""


@frozen(kw_only=True)
class Telling(Task):
    """A task whose agent writes what it saw into `told.json`; it is kept in the trace's `info`."""

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        trace.info["told"] = json.loads(await runtime.read("told.json"))

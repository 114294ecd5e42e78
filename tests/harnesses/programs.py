"""Harness programs of the tests: what each does follows a client of a few lines, standard library only."""

from rollout_fsm import ProgramHarness
from rollout_fsm.harnesses.program import File, PromptBy

CLIENT = """
import json, os, sys, time, urllib.error, urllib.request

def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps({"messages": messages}).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]

def say(text):
    return ask([{"role": "user", "content": text}])

def conversation():
    with open(os.environ["ROLLOUT_CONVERSATION"]) as file:
        return json.load(file)
"""


def program(
    body: str,
    *arguments: str,
    prompt: PromptBy = "argument",
    env: dict[str, str] | None = None,
    files: dict[str, File] | None = None,
    multi_turn: bool = False,
) -> ProgramHarness:
    """A harness that runs this Python with the client before it."""
    return ProgramHarness(
        ["{python}", "-I", "agent.py", *arguments],
        prompt=prompt,
        env=env or {},
        files={"agent.py": CLIENT + body, **(files or {})},
        multi_turn=multi_turn,
    )

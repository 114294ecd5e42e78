"""The built-in example, as a user runs it: real processes, the real gateway, no network."""

import ast
import json
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from rollout_fsm import (
    AssistantMessage,
    ChatHarness,
    LocalRuntime,
    Request,
    Response,
    ScriptedModel,
    Task,
    ToolCall,
    ToolMessage,
    Toolset,
    Trace,
    UserMessage,
    check_trace,
    open_engine,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.example import EXAMPLE_LIMITS, Question, example_harness, example_model, example_tasks
from rollout_fsm.rows import task_row
from tests.harnesses.runs import ending, run, said

PROGRAM = Path(str(files("rollout_fsm.example").joinpath("program.py")))

OUTCOMES = {
    # name: (stop condition, reward, turns, tool calls)
    "product": ("agent_completed", 1.1, 2, 1),
    "sum": ("agent_completed", 1.1, 2, 1),
    "power": ("agent_completed", 1.1, 2, 1),
    "remainder": ("agent_completed", 0.1, 1, 0),
    "brackets": ("agent_completed", 1.1, 3, 2),
    "division": ("agent_completed", 1.1, 2, 1),
    "zero": ("agent_completed", 1.1, 2, 1),
    "two-sums": ("agent_completed", 1.1, 2, 2),
    "backwards": ("agent_completed", 1.1, 1, 0),
    "palindrome": ("agent_completed", 1.1, 1, 0),
    "longest": ("agent_completed", 1.1, 1, 0),
    "first-letters": ("agent_completed", 1.1, 1, 0),
    "letters": ("agent_completed", 0.1, 1, 0),
    "vowels": ("agent_completed", 1.1, 1, 0),
    "odd-one-out": ("agent_completed", 1.1, 1, 0),
    "capital": ("gave_up", 0.0, 1, 0),
    "search": ("max_turns", 0.0, 4, 4),
    "outage": ("error", None, 0, None),
    "archive": ("context_length", 0.0, 0, 0),
    "weather": ("agent_completed", 0.0, 1, 0),
}


def outcome(trace: Trace) -> tuple[str | None, float | None, int, float | None]:
    return trace.stop_condition, trace.reward, trace.num_turns, trace.metrics.get("tool_calls")


def task_named(name: str) -> Question:
    return next(task for task in example_tasks() if task.name == name)


@pytest.mark.real_time
async def test_a_run_of_the_example_shows_how_rollouts_end() -> None:
    async with (
        open_engine() as engine,
        engine.run_all(
            example_tasks(),
            harness=example_harness(),
            model=example_model(),
            limits=EXAMPLE_LIMITS,
            max_concurrent=8,
        ) as traces,
    ):
        finished = {str(trace.task.data["name"]): trace async for trace in traces}
    assert {name: outcome(trace) for name, trace in finished.items()} == OUTCOMES
    assert [name for name, trace in finished.items() if not trace.ok] == ["outage"]
    for trace in finished.values():
        assert check_trace(trace) == []
        assert trace.warnings == []
        assert trace_from_json(trace_to_json(trace)) == trace
    (error,) = finished["outage"].errors
    assert (error.type, error.status_code) == ("ProviderError", 503)
    assert "program.py: the model did not answer: HTTP 503" in error.message
    assert said(finished["brackets"])[1:] == [
        ("user", "What is (12 - 5) * (3 + 6)?"),
        ("assistant", "Let me calculate that."),
        ("tool", "Error: ValueError: not an arithmetic expression: '(12 - 5) * (3 + 6'"),
        ("assistant", "A bracket was missing."),
        ("tool", "63"),
        ("assistant", "Answer: 63"),
    ]
    assert said(finished["two-sums"])[2:] == [
        ("assistant", "Let me calculate that."),
        ("tool", "1517"),
        ("tool", "1521"),
        ("assistant", "They are 1517 and 1521. Answer: 39 * 39"),
    ]


WRONG_CALLS = (
    ("calculator", '{"expression": "10 / 0"}', "Error: ZeroDivisionError: division by zero"),
    ("calculator", '{"expression": "2.0 ** 9999"}', "Error: OverflowError: "),
    ("calculator", '{"expression": 3}', "Error: the argu"),
    ("calculator", '{"formula": "1"}', "Error: the argu"),
    ("calculator", "[1]", "Error: the arguments are no JSON object: [1]"),
    ("calculator", "1 + 1", "Error: the arguments are no JSON: "),
    ("shell", "{}", "Error: there is no tool 'shell'; there is calculator"),
    ("calculator", '{"expression": "1 + 1"}', "2"),
)


@pytest.mark.real_time
async def test_whatever_is_wrong_with_a_call_is_its_result() -> None:
    calls = [ToolCall(id=str(at), name=name, arguments=given) for at, (name, given, _) in enumerate(WRONG_CALLS)]
    calling = Response(message=AssistantMessage(tool_calls=calls), finish_reason="tool_calls")
    async with open_engine() as engine:
        model = ScriptedModel([calling, "done"])
        trace = await engine.run(task_named("product"), harness=example_harness(), model=model)
    assert trace.errors == []
    told = [node.message.text for node in trace.nodes if isinstance(node.message, ToolMessage)]
    assert [text[: len(result)] for text, (_, _, result) in zip(told, WRONG_CALLS, strict=True)] == [
        result for _, _, result in WRONG_CALLS
    ]


@pytest.mark.real_time
async def test_the_example_can_be_talked_to() -> None:
    async with (
        open_engine() as engine,
        engine.interaction(
            task_named("product"), harness=example_harness(), model=example_model(), limits=EXAMPLE_LIMITS
        ) as interaction,
    ):
        first = await interaction.turn()
        second = await interaction.turn("And what is 6 * 7?")
    assert (first.last_reply, second.last_reply) == ("Answer: 391", "Answer: 42")
    trace = interaction.trace
    assert check_trace(trace) == []
    assert ending(trace) == (True, "user_closed", [], [])
    assert [role for role, _ in said(trace)] == ["system", *(("user", "assistant", "tool", "assistant") * 2)]
    assert len(trace.branches) == 1


@pytest.mark.real_time
async def test_the_program_needs_nothing_but_a_conversation_and_says_when_the_api_fails(tmp_path: Path) -> None:
    runtime = LocalRuntime("alone")
    try:
        await runtime.start()
        await runtime.write("conversation.json", json.dumps([{"role": "user", "content": "hi"}]))
        command = [sys.executable, "-I", str(PROGRAM)]
        usage = await runtime.run(command)
        assert (usage.exit_code, usage.stdout, usage.stderr) == (2, "", "usage: program.py conversation.json\n")
        env = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "none"}
        unreachable = await runtime.run([*command, "conversation.json"], env=env)
        assert unreachable.exit_code == 1
        assert unreachable.stdout == ""
        assert unreachable.stderr.startswith("program.py: the model did not answer: URLError: ")
        assert unreachable.stderr.count("\n") == 1
        async with open_engine() as engine:
            env["OPENAI_BASE_URL"] = engine.url
            unknown = await runtime.run([*command, "conversation.json"], env=env)
        assert unknown.exit_code == 1
        assert unknown.stderr.startswith("program.py: the model did not answer: HTTP 401: no rollout has this key")
    finally:
        await runtime.stop()


@pytest.mark.real_time
async def test_the_last_reply_is_what_the_program_prints() -> None:
    printed: list[str] = []

    class Printing(LocalRuntime):
        async def run(self, argv, **settings):  # type: ignore[no-untyped-def]
            result = await super().run(argv, **settings)
            printed.append(result.stdout)
            return result

    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="hi"), harness=example_harness(), model=ScriptedModel(["hello"]), runtime=Printing
        )
    assert trace.ok
    assert printed == ["hello\n"]


def test_the_program_imports_the_standard_library_only() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_rows_are_twenty_and_are_what_their_tasks_write() -> None:
    tasks = example_tasks()
    assert [task.idx for task in tasks] == list(range(20))
    assert len({task.key for task in tasks}) == 20
    lines = files("rollout_fsm.example").joinpath("tasks.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [task_row(task) for task in tasks]


@pytest.mark.real_time
async def test_the_model_answers_other_harnesses_and_other_questions_too() -> None:
    question = Question(prompt="What is 6 * 7?", answer="42")
    trace = await run(ChatHarness(), example_model(), question, gateway=False)
    assert (trace.reward, trace.stop_condition, trace.num_turns) == (1.1, "agent_completed", 2)

    class Unaided(Question):
        def toolsets(self) -> Sequence[Toolset]:
            return ()

    without_tools = await run(ChatHarness(), example_model(), Unaided(prompt=question.prompt, answer="42"))
    assert (without_tools.reward, without_tools.stop_condition) == (0.0, "gave_up")
    strange = await run(ChatHarness(), example_model(), Question(prompt="Who are you?", answer="?"), gateway=False)
    assert (strange.reward, strange.stop_condition) == (0.0, "gave_up")


@pytest.mark.parametrize(
    ("reply", "correct", "well_formed"),
    [
        ("Answer: Four", 1.0, 1.0),
        ("It is so. Answer: four.\n", 1.0, 1.0),
        ("Answer: five", 0.0, 1.0),
        ("four", 0.0, 0.0),
        ("Answer: four, I think. Or not", 0.0, 1.0),
        ("", 0.0, 0.0),
    ],
)
async def test_an_answer_is_what_follows_the_word(reply: str, correct: float, well_formed: float) -> None:
    def answer(request: Request) -> str:
        assert request.messages == (UserMessage("2 + 2?"),)
        return reply

    trace = await run(ChatHarness(), ScriptedModel(answer), Question(prompt="2 + 2?", answer="four"), gateway=False)
    scores = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
    assert scores == {"correct": correct, "well_formed": well_formed}

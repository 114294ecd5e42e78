"""Programs as harnesses, with real processes, the real gateway and workspaces of their own."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from rollout_fsm import (
    AssistantMessage,
    ImagePart,
    LocalRuntime,
    Message,
    ProgramHarness,
    ProviderError,
    Request,
    RolloutContext,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    ScriptedModel,
    SystemMessage,
    Task,
    TextPart,
    Toolset,
    Trace,
    UserMessage,
    check_trace,
    open_engine,
    tool,
)
from rollout_fsm.harnesses.program import File
from tests.harnesses.programs import program
from tests.harnesses.runs import Ending, Listener, ending, failure, run, said, spoken

pytestmark = pytest.mark.real_time

COMPLETED: Ending = (True, "agent_completed", [], [])


def echo(request: Request) -> str:
    return f"re: {request.messages[-1].text}"


# What a program is given


async def test_a_program_finds_the_model_the_conversation_and_the_system_prompt_in_its_environment() -> None:
    body = "say(json.dumps({**os.environ, 'conversation': conversation(), 'argv': sys.argv}))"
    listener = Listener(echo)
    trace = await run(
        program(
            body, env={"LEVEL": "3", "OTHER_BASE": "{endpoint}", "OTHER_MODEL": "{model}", "OTHER_KEY": "{secret}"}
        ),
        listener.model,
        Task(prompt="2 + 2?", system_prompt="Be brief."),
        id="a/trace",
    )
    assert ending(trace) == COMPLETED
    given = json.loads(listener.requests[0].messages[0].text)
    assert given["conversation"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
    ]
    assert given["argv"] == ["agent.py", "2 + 2?"]
    assert given["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
    assert given["OPENAI_BASE_URL"] == given["OTHER_BASE"]
    assert given["OPENAI_API_KEY"] == given["OTHER_KEY"] != ""
    assert given["ANTHROPIC_API_KEY"] == given["OPENAI_API_KEY"]
    assert f"{given['ANTHROPIC_BASE_URL']}/v1" == given["OPENAI_BASE_URL"]
    assert given["OPENAI_MODEL"] == given["OTHER_MODEL"] == "scripted"
    assert given["ROLLOUT_CONVERSATION"] == ".rollout/a_trace/conversation-1.json"
    assert given["ROLLOUT_SYSTEM_PROMPT"] == "Be brief."
    assert given["LEVEL"] == "3"
    assert {"ROLLOUT_TOOL_URLS", "ROLLOUT_MCP_CONFIG"}.isdisjoint(given)


async def test_a_program_of_a_task_without_a_system_prompt_is_given_none() -> None:
    listener = Listener(echo)
    await run(
        program("say(json.dumps([conversation(), 'ROLLOUT_SYSTEM_PROMPT' in os.environ]))"),
        listener.model,
        Task(prompt="hi"),
    )
    assert json.loads(listener.requests[0].messages[0].text) == [[{"role": "user", "content": "hi"}], False]


class Clock(Toolset):
    async def start(self, context: RolloutContext) -> str:
        return "http://127.0.0.1:9/mcp"


async def test_a_program_is_given_the_urls_of_the_tool_servers() -> None:
    listener = Listener(echo)
    await run(program("say(os.environ['ROLLOUT_TOOL_URLS'])"), listener.model, Task(prompt="hi"), tools=[Clock])
    assert json.loads(listener.requests[0].messages[0].text) == {"Clock": "http://127.0.0.1:9/mcp"}


@pytest.mark.parametrize(
    "body", ["say(open(os.environ['ROLLOUT_MCP_CONFIG']).read())", "say(open(sys.argv[1]).read())"]
)
async def test_a_program_is_given_the_file_that_agent_programs_read_tool_servers_from(body: str) -> None:
    listener = Listener(echo)
    await run(program(body, "{mcp_config}", prompt="stdin"), listener.model, Task(prompt="hi"), tools=[Clock])
    assert json.loads(listener.requests[0].messages[0].text) == {
        "mcpServers": {"Clock": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}
    }


async def test_the_file_of_a_rollout_without_tool_servers_names_none() -> None:
    listener = Listener(echo)
    harness = program("say(open(sys.argv[1]).read())", "{mcp_config}", prompt="stdin")
    await run(harness, listener.model, Task(prompt="hi"))
    assert json.loads(listener.requests[0].messages[0].text) == {"mcpServers": {}}


async def test_a_program_with_an_mcp_client_of_its_own_calls_the_tools_that_the_file_names() -> None:
    body = """
import asyncio
from mcp import Client

async def main():
    servers = json.load(open(os.environ["ROLLOUT_MCP_CONFIG"]))["mcpServers"]
    async with Client(servers["Adder"]["url"]) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("add", {"left": 2, "right": 3})
        say(f"{listed} {result.content[0].text}")

asyncio.run(main())
"""

    class Adder(Toolset):
        @tool
        async def add(self, left: int, right: int, state: dict[str, object]) -> int:
            state["called"] = True
            return left + right

    listener = Listener(echo)
    trace = await run(program(body), listener.model, Task(prompt="hi"), tools=[Adder])
    assert ending(trace) == COMPLETED
    assert (listener.requests[0].messages[0].text, trace.state) == ("['add'] 5", {"called": True})


@pytest.mark.parametrize(
    ("harness", "told"),
    [
        (program("say(repr(sys.argv[1:]))"), "['say {model}']"),
        (program("say(repr(sys.argv[1:]))", "--task={prompt}", "-v"), "['--task=say {model}', '-v']"),
        (program("say(repr([sys.stdin.read(), sys.argv[1:]]))", prompt="stdin"), "['say {model}', []]"),
        (program("say(open(sys.argv[1]).read())", prompt="file"), "say {model}"),
        (program("say(open(sys.argv[2]).read())", "-f", "{prompt_file}"), "say {model}"),
        (
            program("say(repr(sys.argv[1:]))", '{"not": "{a placeholder}"}', prompt="stdin"),
            """['{"not": "{a placeholder}"}']""",
        ),
        (
            program("say(repr([sys.stdin.read(), json.load(open(sys.argv[1]))]))", "{conversation}"),
            "['', [{'role': 'user', 'content': 'say {model}'}]]",
        ),
    ],
)
async def test_a_prompt_is_handed_over_as_the_harness_says(harness: ProgramHarness, told: str) -> None:
    trace = await run(harness, ScriptedModel(["ok"]), Task(prompt="say {model}"))
    assert ending(trace) == COMPLETED
    assert said(trace) == [("user", told), ("assistant", "ok")]


async def test_a_command_line_in_one_text_is_split_and_run_without_a_shell() -> None:
    harness = ProgramHarness(
        "{python} -I agent.py '$HOME; exit 3' {prompt}",
        files={"agent.py": program("say(repr(sys.argv[1:]))").files["agent.py"]},
    )
    trace = await run(harness, ScriptedModel(["ok"]), Task(prompt="a 'b' c"))
    assert said(trace)[0] == ("user", repr(["$HOME; exit 3", "a 'b' c"]))
    assert harness.name == "agent.py"


async def test_several_user_messages_are_handed_over_as_paragraphs() -> None:
    opening = [UserMessage("one"), UserMessage((TextPart("two"), TextPart("and more")))]
    trace = await run(program("say(sys.argv[1])"), ScriptedModel(["ok"]), Task(prompt=opening))
    assert said(trace)[0] == ("user", "one\n\ntwo\nand more")


@pytest.mark.parametrize(
    ("opening", "role"),
    [
        ([UserMessage("2 + 2?"), AssistantMessage("4"), UserMessage("3 + 3?")], "assistant"),
        ([UserMessage((ImagePart("http://x/y.png"),))], "user"),
        ([SystemMessage("Be brief."), UserMessage("2 + 2?")], "system"),
    ],
)
async def test_a_prompt_that_text_cannot_carry_needs_the_conversation(opening: Sequence[Message], role: str) -> None:
    refused = await run(program("say('hi')"), ScriptedModel(["ok"]), Task(prompt=opening))
    assert failure(refused) == (
        "HarnessError",
        f"agent.py is given its prompt as text, which cannot carry a {role} message like this one; "
        "have the program read {conversation}",
    )
    listener = Listener(echo)
    carried = await run(
        program("ask(json.load(open(sys.argv[1])))", "{conversation}"), listener.model, Task(prompt=opening)
    )
    assert ending(carried) == COMPLETED
    assert listener.requests[0].messages == Task(prompt=opening).opening


@pytest.mark.parametrize(
    ("prompt", "why"),
    [("x" * 200_000, "has 200000 bytes"), ("a\0b", "holds a NUL character")],
)
async def test_a_prompt_that_no_argument_can_carry_is_said_and_goes_through_a_file(prompt: str, why: str) -> None:
    kind, message = failure(await run(program("say('hi')"), ScriptedModel(["ok"]), Task(prompt=prompt)))
    assert kind == "HarnessError"
    assert message.startswith(f"agent.py: the prompt as an argument {why}")
    assert message.endswith("use prompt='stdin', {prompt_file} or {conversation}")
    for by in ("file", "stdin"):
        told = "open(sys.argv[1], newline='').read()" if by == "file" else "sys.stdin.read()"
        trace = await run(program(f"say({told})", prompt=by), ScriptedModel(["ok"]), Task(prompt=prompt))
        assert said(trace) == [("user", prompt), ("assistant", "ok")]


async def test_a_system_prompt_that_no_variable_can_carry_is_said_and_can_be_left_to_the_conversation() -> None:
    task = Task(prompt="hi", system_prompt="x" * 200_000)
    kind, message = failure(await run(program("say('hi')"), ScriptedModel(["ok"]), task))
    assert kind == "HarnessError"
    assert message.startswith("agent.py: the system prompt, which goes into ROLLOUT_SYSTEM_PROMPT, has 200000 bytes")
    harness = program("ask(conversation())", env={"ROLLOUT_SYSTEM_PROMPT": ""})
    trace = await run(harness, ScriptedModel(["ok"]), task)
    assert said(trace) == [("system", "x" * 200_000), ("user", "hi"), ("assistant", "ok")]


async def test_files_and_folders_are_copied_into_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "a.txt").write_text("A")
    (tmp_path / "data" / "deep" / "b.bin").write_bytes(b"B")
    body = "say(''.join(open(name).read() for name in ['in/a.txt', 'in/deep/b.bin', 'c.txt', 'd.txt', 'e.txt']))"
    files: dict[str, File] = {
        "in": tmp_path / "data",
        "c.txt": b"C",
        "d.txt": "D",
        "e.txt": tmp_path / "data" / "a.txt",
    }
    trace = await run(program(body, files=files), ScriptedModel(["ok"]), Task(prompt="hi"))
    assert said(trace)[0] == ("user", "ABCDA")


async def test_a_file_that_is_not_there_fails_the_setup_and_is_named(tmp_path: Path) -> None:
    harness = program("say('hi')", files={"a.txt": tmp_path / "missing.txt"})
    trace = await run(harness, ScriptedModel(["ok"]), Task(prompt="hi"))
    kind, message = failure(trace)
    assert kind == "HarnessError"
    assert message.startswith("harness setup failed: FileNotFoundError")
    assert "missing.txt" in message
    assert [taken.target for taken in trace.transitions] == ["booting", "setup", "failing", "discarding", "failed"]


# How a program ends


async def test_a_program_talks_to_the_model_and_ends() -> None:
    body = """
messages = conversation()
for _ in range(3):
    messages.append(ask(messages))
    messages.append({"role": "user", "content": "go on"})
"""
    trace = await run(
        program(body), ScriptedModel(["one", "two", "three"]), Task(prompt="count", system_prompt="Count.")
    )
    assert ending(trace) == COMPLETED
    assert said(trace) == [
        ("system", "Count."),
        ("user", "count"),
        ("assistant", "one"),
        ("user", "go on"),
        ("assistant", "two"),
        ("user", "go on"),
        ("assistant", "three"),
    ]
    assert (len(trace.branches), trace.num_turns, len(trace.calls)) == (1, 3, 3)
    assert [taken.target for taken in trace.transitions] == [
        *("booting", "setup", "waiting", "stepping", "waiting"),
        *("closing", "finalizing", "scoring", "releasing", "completed"),
    ]


async def test_a_program_that_a_refused_turn_ends_with_exit_1_is_stopped_cleanly() -> None:
    body = """
say('first')
try:
    say('second')
except urllib.error.HTTPError as error:
    sys.exit(f"HTTP {error.code}: {error.read().decode()}")
"""
    trace = await run(program(body), ScriptedModel(["one"]), Task(prompt="hi"), limits=RolloutLimits(max_turns=1))
    assert ending(trace) == (True, "max_turns", [], [])
    assert said(trace) == [("user", "first"), ("assistant", "one")]
    assert "stopping" in [taken.target for taken in trace.transitions]


async def test_a_program_that_fails_is_a_harness_error_with_its_status_and_its_last_words() -> None:
    body = "say('hi'); sys.stderr.write('noise ' * 10000 + 'disk full'); sys.exit(3)"
    trace = await run(program(body), ScriptedModel(["one"]), Task(prompt="hi"))
    kind, message = failure(trace)
    assert kind == "HarnessError"
    assert "exited with 3" in message
    assert message.endswith("noise disk full")
    assert len(message) < 3000
    assert trace.stop_condition == "error"
    assert said(trace) == [("user", "hi"), ("assistant", "one")]


async def test_the_failure_of_the_model_counts_when_the_program_swallows_it() -> None:
    def fail(request: Request) -> str:
        raise ProviderError("overloaded", status_code=503)

    body = """
try:
    say('hi')
except urllib.error.HTTPError as error:
    assert error.code == 503
"""
    trace = await run(program(body), ScriptedModel(fail), Task(prompt="hi"))
    assert failure(trace) == ("ProviderError", "overloaded")
    assert trace.errors[0].status_code == 503


async def test_a_program_that_fails_after_the_model_did_is_told_as_the_cause_beside_it() -> None:
    def fail(request: Request) -> str:
        raise ProviderError("overloaded", status_code=503)

    trace = await run(program("say('hi')"), ScriptedModel(fail), Task(prompt="hi"))
    kind, message = failure(trace)
    assert kind == "ProviderError"
    assert message.startswith("overloaded")
    assert "HTTP Error 503" in message


async def test_a_program_that_asks_again_after_a_failure_of_the_model_goes_on() -> None:
    asked: list[Request] = []

    def fail_once(request: Request) -> str:
        asked.append(request)
        if len(asked) == 1:
            raise ProviderError("overloaded", status_code=503)
        return "better"

    body = """
try:
    say('hi')
except urllib.error.HTTPError:
    say('hi')
"""
    trace = await run(program(body), ScriptedModel(fail_once), Task(prompt="hi"))
    assert ending(trace) == COMPLETED
    assert said(trace) == [("user", "hi"), ("assistant", "better")]


async def test_a_program_that_never_calls_the_model_made_no_progress() -> None:
    stopped = await run(program("print('done')"), ScriptedModel([]), Task(prompt="hi"))
    assert ending(stopped) == (True, "no_progress", [], [])
    failed = await run(
        program("print('done')"), ScriptedModel([]), Task(prompt="hi"), policy=RolloutPolicy(no_progress="fail")
    )
    assert failure(failed)[0] == "HarnessError"


def processes_with(token: str) -> list[str]:
    """The command lines of this machine's processes that have the token in them."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes().decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if token in line:
            found.append(line)
    return found


async def test_a_program_that_hangs_is_killed_at_the_end_of_the_agent_budget() -> None:
    token = f"86399.{uuid4().int}"
    harness = ProgramHarness(["sleep", token], prompt="stdin")
    trace = await run(harness, ScriptedModel([]), Task(prompt="hi"), timeouts=RolloutTimeouts(agent=0.2))
    kind, message = failure(trace)
    assert kind == "HarnessError"
    assert message.startswith("agent timeout: ")
    assert trace.warnings == []
    assert processes_with(token) == []


async def test_a_program_that_goes_on_after_a_refusal_is_cut_off_and_the_rollout_is_stopped() -> None:
    body = """
try:
    say('hi')
except urllib.error.HTTPError:
    time.sleep(86399.5)
"""
    token = uuid4().hex
    trace = await run(
        program(body, token),
        ScriptedModel([]),
        Task(prompt="hi"),
        limits=RolloutLimits(max_turns=0),
        timeouts=RolloutTimeouts(drain=0.1),
    )
    assert ending(trace) == (True, "max_turns", [], [])
    assert processes_with(token) == []


async def test_a_program_that_is_not_there_is_named() -> None:
    kind, message = failure(await run(ProgramHarness("no-such-agent --yes"), ScriptedModel([]), Task(prompt="hi")))
    assert kind == "HarnessError"
    assert message.startswith("no-such-agent: the program 'no-such-agent' cannot be run: ")
    assert "no such program" in message


async def test_a_program_that_cannot_be_executed_is_named() -> None:
    harness = ProgramHarness("./agent.sh", files={"agent.sh": "#!/bin/sh\n"})
    kind, message = failure(await run(harness, ScriptedModel([]), Task(prompt="hi")))
    assert kind == "HarnessError"
    assert message.startswith("agent.sh: the program './agent.sh' cannot be run: ")


async def test_a_program_needs_the_gateway() -> None:
    trace = await run(program("say('hi')"), ScriptedModel([]), Task(prompt="hi"), gateway=False)
    assert failure(trace) == (
        "HarnessError",
        "agent.py is a program and needs the gateway; open the engine with gateway=True",
    )


# Several segments

RESUMING = """
messages = conversation()
ask(messages)
"""


@pytest.mark.parametrize("prompt", ["hello", None])
async def test_a_program_is_run_again_with_the_conversation_so_far(prompt: str | None) -> None:
    task = Task(prompt=prompt, system_prompt="Be kind.")
    harness = program(RESUMING, "{conversation}", multi_turn=True)
    async with (
        open_engine() as engine,
        engine.interaction(task, harness=harness, model=ScriptedModel(echo)) as interaction,
    ):
        first = await interaction.turn(None if prompt else "hello")
        second = await interaction.turn("and now?")
        third = await interaction.turn([UserMessage("one"), UserMessage("two")])
    assert (first.last_reply, second.last_reply, third.last_reply) == ("re: hello", "re: and now?", "re: two")
    assert [segment.terminated for segment in (first, second, third)] == [False, False, False]
    trace = interaction.trace
    assert check_trace(trace) == []
    assert ending(trace) == (True, "user_closed", [], [])
    assert said(trace) == [
        ("system", "Be kind."),
        ("user", "hello"),
        ("assistant", "re: hello"),
        ("user", "and now?"),
        ("assistant", "re: and now?"),
        ("user", "one"),
        ("user", "two"),
        ("assistant", "re: two"),
    ]
    assert len(trace.branches) == 1


async def test_a_prompt_and_words_of_the_user_open_the_conversation_together() -> None:
    listener = Listener(echo)
    async with (
        open_engine() as engine,
        engine.interaction(
            Task(prompt="hello"), harness=program("say(sys.argv[1])"), model=listener.model
        ) as interaction,
    ):
        await interaction.turn("it is me")
    assert [spoken(message) for message in listener.requests[0].messages] == [("user", "hello\n\nit is me")]


async def test_a_program_that_goes_on_is_given_only_the_new_words_as_its_prompt() -> None:
    harness = program("ask([*conversation()[:-1], {'role': 'user', 'content': sys.argv[1]}])", multi_turn=True)
    async with (
        open_engine() as engine,
        engine.interaction(Task(prompt="hello"), harness=harness, model=ScriptedModel(echo)) as interaction,
    ):
        await interaction.turn()
        await interaction.turn("and now?")
    assert said(interaction.trace) == [
        ("user", "hello"),
        ("assistant", "re: hello"),
        ("user", "and now?"),
        ("assistant", "re: and now?"),
    ]


async def test_a_program_with_a_system_prompt_of_its_own_finds_that_and_not_the_tasks() -> None:
    body = """
messages = conversation()
if messages[0]["content"] == "Be kind.":
    messages[0] = {"role": "system", "content": "Be mine."}
ask(messages)
"""
    harness = program(body, "{conversation}", multi_turn=True)
    task = Task(prompt="hello", system_prompt="Be kind.")
    async with (
        open_engine() as engine,
        engine.interaction(task, harness=harness, model=ScriptedModel(echo)) as interaction,
    ):
        await interaction.turn()
        await interaction.turn("and now?")
    assert said(interaction.trace) == [
        ("system", "Be mine."),
        ("user", "hello"),
        ("assistant", "re: hello"),
        ("user", "and now?"),
        ("assistant", "re: and now?"),
    ]


async def test_a_program_that_cannot_go_on_fails_at_its_second_segment_and_says_so() -> None:
    async with (
        open_engine() as engine,
        engine.interaction(
            Task(prompt="hello"), harness=program("say(sys.argv[1])"), model=ScriptedModel(echo)
        ) as interaction,
    ):
        assert not (await interaction.turn()).terminated
        assert (await interaction.turn("and now?")).terminated
    assert failure(interaction.trace) == (
        "HarnessError",
        "agent.py cannot go on with a conversation: a second segment needs a program that reads {conversation}, "
        "and ProgramHarness(…, multi_turn=True)",
    )


# Many at once


async def test_twenty_programs_at_once_do_not_hear_each_other() -> None:
    body = "say(sys.argv[1]); say(open(os.environ['ROLLOUT_CONVERSATION']).read())"
    tasks = [Task(prompt=f"question {place}", idx=place) for place in range(20)]
    async with (
        open_engine() as engine,
        engine.run_all(tasks, harness=program(body), model=ScriptedModel(echo), max_concurrent=20) as traces,
    ):
        finished = [trace async for trace in traces]
    assert {trace.task.data["idx"] for trace in finished} == set(range(20))
    for trace in finished:
        prompt = f"question {trace.task.data['idx']}"
        told = json.dumps([{"role": "user", "content": prompt}])
        assert ending(trace) == COMPLETED
        assert said(trace) == [
            ("user", prompt),
            ("assistant", f"re: {prompt}"),
            ("user", told),
            ("assistant", f"re: {told}"),
        ]


async def test_rollouts_in_one_borrowed_runtime_do_not_read_each_others_conversations() -> None:
    runtime = LocalRuntime("shared")
    await runtime.start()
    traces: list[tuple[int, Trace]] = []
    harness = program("ask(conversation())", "{conversation}")
    try:
        async with open_engine() as engine:

            async def one(place: int) -> None:
                task = Task(prompt=f"question {place}")
                trace = await engine.run(task, harness=harness, model=meeting, runtime=runtime)
                traces.append((place, trace))

            arrived: list[Request] = []
            all_there = trio.Event()

            async def meet(request: Request) -> str:
                arrived.append(request)
                if len(arrived) == 4:
                    all_there.set()
                await all_there.wait()
                return echo(request)

            meeting = ScriptedModel(meet)
            async with trio.open_nursery() as nursery:
                for place in range(4):
                    nursery.start_soon(one, place)
    finally:
        await runtime.stop()
    assert len(traces) == 4
    for place, trace in traces:
        assert said(trace) == [("user", f"question {place}"), ("assistant", f"re: question {place}")]


async def test_a_model_that_runs_a_sub_agent_does_so_under_the_permit_of_the_program_that_asks_it() -> None:
    """There is one permit, and the program holds it: a sub-agent that waited for one would wait for ever."""

    async def sub_agent(request: Request) -> str:
        sub = await engine.run(Task(prompt="sub"), harness=asks, model=ScriptedModel(echo))
        assert check_trace(sub) == []
        return f"sub-agent: {sub.last_reply}"

    asks, in_time = program("print(say(sys.argv[1]))"), RolloutTimeouts(agent=20)
    async with open_engine(max_active_segments=1) as engine:
        trace = await engine.run(Task(prompt="top"), harness=asks, model=ScriptedModel(sub_agent), timeouts=in_time)
    assert ending(trace) == COMPLETED
    assert trace.last_reply == "sub-agent: re: sub"


def test_this_interpreter_can_be_named() -> None:
    assert ProgramHarness("{python} -m agent").name == "agent"
    assert ProgramHarness([sys.executable, "agent.py"]).name == "agent.py"

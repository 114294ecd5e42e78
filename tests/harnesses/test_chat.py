"""The chat loop, in virtual time and without a gateway."""

from collections.abc import Sequence

import pytest
import trio
from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    ChatHarness,
    ProviderError,
    Request,
    Response,
    RolloutLimits,
    RolloutTimeouts,
    ScriptedModel,
    Task,
    ToolMessage,
    UserMessage,
    check_trace,
    intercept,
    open_engine,
    stop,
)
from tests.harnesses.runs import Ending, Listener, calling, ending, failure, run, said, spoken

COMPLETED: Ending = (True, "agent_completed", [], [])


def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def fail() -> str:
    raise ZeroDivisionError("by nothing")


async def chat(
    tools: Sequence[object],
    replies: Sequence[str | Response],
    *,
    task: Task | None = None,
    limits: RolloutLimits | None = None,
) -> list[tuple[str, str]]:
    """What was said in a rollout that completed."""
    harness = ChatHarness(tools)  # type: ignore[arg-type]
    trace = await run(
        harness,
        ScriptedModel(list(replies)),
        task or Task(prompt="2 + 2?"),
        gateway=False,
        limits=limits or RolloutLimits(),
    )
    assert ending(trace) == COMPLETED
    return said(trace)


async def test_without_tools_one_reply_ends_the_segment_and_the_system_prompt_comes_first() -> None:
    listener = Listener(["4"])
    task = Task(prompt="2 + 2?", system_prompt="Be brief.")
    trace = await run(ChatHarness(), listener.model, task, gateway=False)
    assert ending(trace) == COMPLETED
    assert said(trace) == [("system", "Be brief."), ("user", "2 + 2?"), ("assistant", "4")]
    assert listener.requests[0].tools == ()
    assert trace.num_turns == 1
    assert len(trace.branches) == 1


async def test_the_model_calls_tools_until_it_answers_without() -> None:
    listener = Listener(
        [
            calling(("add", '{"left": 2, "right": 2}'), saying="Let me see."),
            calling(("add", '{"left": 4, "right": 4}'), ("add", '{"left": 1, "right": 1}')),
            "8 and 2",
        ]
    )
    harness = ChatHarness([add])
    trace = await run(harness, listener.model, Task(prompt="go"), gateway=False)
    assert ending(trace) == COMPLETED
    assert [node.message for node in trace.nodes] == [
        UserMessage("go"),
        calling(("add", '{"left": 2, "right": 2}'), saying="Let me see.").message,
        ToolMessage("4", tool_call_id="c0", name="add"),
        calling(("add", '{"left": 4, "right": 4}'), ("add", '{"left": 1, "right": 1}')).message,
        ToolMessage("8", tool_call_id="c0", name="add"),
        ToolMessage("2", tool_call_id="c1", name="add"),
        AssistantMessage("8 and 2"),
    ]
    assert [node.parent for node in trace.nodes] == [None, 0, 1, 2, 3, 4, 5]
    assert [tool.name for tool in trace.tools] == ["add"]
    assert all(request.tools == (harness.tools["add"].tool,) for request in listener.requests)
    assert (trace.num_turns, len(trace.branches)) == (3, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("fail", "", "Error: ZeroDivisionError: by nothing"),
        ("add", '{"left": 1}', "Error: the arguments of add do not fit: right: it is required"),
        ("add", "left=1", "Error: the arguments of add are not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("sub", "{}", "Error: there is no tool 'sub'; there are add, fail"),
        ("ad", "{}", "Error: there is no tool 'ad'; did you mean 'add'?"),
    ],
)
async def test_what_goes_wrong_with_a_tool_is_told_to_the_model(name: str, arguments: str, result: str) -> None:
    assert await chat([add, fail], [calling((name, arguments)), "I see."]) == [
        ("user", "2 + 2?"),
        ("assistant", ""),
        ("tool", result),
        ("assistant", "I see."),
    ]


async def test_a_call_where_there_are_no_tools_is_told() -> None:
    assert (await chat([], [calling(("add", "{}")), "I see."]))[2] == (
        "tool",
        "Error: there is no tool 'add'",
    )


async def test_an_exception_without_words_or_with_unspeakable_ones_is_told_by_its_type() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def silent() -> None:
        raise KeyError

    def unspeakable() -> None:
        raise UnspeakableError

    told = await chat([silent, unspeakable], [calling(("silent", ""), ("unspeakable", "")), "I see."])
    assert told[2:4] == [("tool", "Error: KeyError"), ("tool", "Error: UnspeakableError")]


async def test_a_failing_async_tool_does_not_stop_the_others() -> None:
    async def late() -> str:
        await trio.sleep(10)
        return "late"

    async def broken() -> str:
        await trio.sleep(1)
        raise trio.TooSlowError

    told = await chat([late, broken], [calling(("late", ""), ("broken", ""), ("late", "")), "I see."])
    assert told[2:5] == [("tool", "late"), ("tool", "Error: TooSlowError"), ("tool", "late")]


async def test_plain_calls_run_in_order_and_async_ones_side_by_side_with_results_in_the_order_of_the_calls() -> None:
    log: list[str] = []

    async def wait(seconds: int) -> str:
        log.append(f"begin {seconds}")
        await trio.sleep(seconds)
        log.append(f"end {seconds}")
        return f"waited {seconds}"

    def note(text: str) -> str:
        log.append(text)
        return text

    began = trio.current_time()
    told = await chat(
        [wait, note],
        [
            calling(
                ("wait", '{"seconds": 3}'),
                ("note", '{"text": "a"}'),
                ("wait", '{"seconds": 1}'),
                ("note", '{"text": "b"}'),
            ),
            "done",
        ],
    )
    assert told[2:6] == [("tool", "waited 3"), ("tool", "a"), ("tool", "waited 1"), ("tool", "b")]
    assert [entry for entry in log if entry in ("a", "b")] == ["a", "b"]
    assert log[-2:] == ["end 1", "end 3"]
    assert trio.current_time() - began == 3


async def test_no_more_than_max_parallel_calls_run_at_once_and_one_at_a_time_is_in_order() -> None:
    running: list[int] = []
    most: list[int] = []
    order: list[int] = []

    async def work(number: int) -> int:
        running.append(number)
        order.append(number)
        most.append(len(running))
        await trio.sleep(1)
        running.remove(number)
        return number

    calls = calling(*(("work", f'{{"number": {number}}}') for number in range(6)))
    for bound in (1, 2, 8):
        order.clear()
        most.clear()
        began = trio.current_time()
        trace = await run(
            ChatHarness([work], max_parallel=bound), ScriptedModel([calls, "ok"]), Task(prompt="go"), gateway=False
        )
        assert ending(trace) == COMPLETED
        assert max(most) == min(bound, 6)
        assert trio.current_time() - began == {1: 6, 2: 3, 8: 1}[bound]
        assert sorted(order) == list(range(6))
        if bound == 1:
            assert order == list(range(6))


async def test_the_conversation_goes_on_from_segment_to_segment() -> None:
    def answer(request: Request) -> str | Response:
        if spoken(request.messages[-1]) == ("user", "add"):
            return calling(("add", '{"left": 1, "right": 2}'))
        return f"{len(request.messages)}"

    async with (
        open_engine(gateway=False) as engine,
        engine.interaction(
            Task(system_prompt="Be kind."), harness=ChatHarness([add]), model=ScriptedModel(answer)
        ) as interaction,
    ):
        segments = [await interaction.turn(words) for words in ("hello", "add", "bye")]
    assert [segment.last_reply for segment in segments] == ["2", "6", "8"]
    trace = interaction.trace
    assert check_trace(trace) == []
    assert ending(trace) == (True, "user_closed", [], [])
    assert len(trace.branches) == 1
    assert said(trace) == [
        ("system", "Be kind."),
        ("user", "hello"),
        ("assistant", "2"),
        ("user", "add"),
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", "6"),
        ("user", "bye"),
        ("assistant", "8"),
    ]


async def test_a_refused_turn_ends_the_segment_cleanly() -> None:
    looping = ScriptedModel(lambda request: calling(("add", '{"left": 1, "right": 1}')))
    trace = await run(ChatHarness([add]), looping, Task(prompt="go"), gateway=False, limits=RolloutLimits(max_turns=3))
    assert ending(trace) == (True, "max_turns", [], [])
    assert [role for role, _ in said(trace)] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_a_stop_of_the_task_ends_the_segment_before_the_tools_run() -> None:
    @frozen(kw_only=True)
    class Careful(Task):
        @stop
        def dangerous(self, response: Response) -> bool:
            return any(call.name == "explode" for call in response.message.tool_calls)

    ran: list[str] = []

    def explode() -> None:
        ran.append("explode")

    trace = await run(
        ChatHarness([explode]), ScriptedModel([calling(("explode", ""))]), Careful(prompt="go"), gateway=False
    )
    assert ending(trace) == (True, "dangerous", [], [])
    assert ran == []
    assert said(trace) == [("user", "go"), ("assistant", "")]


async def test_a_result_that_an_interceptor_rewrites_stays_rewritten() -> None:
    @frozen(kw_only=True)
    class Private(Task):
        @intercept
        def hide(self, request: Request) -> Request:
            messages = [
                ToolMessage("hidden", tool_call_id=message.tool_call_id, name=message.name)
                if isinstance(message, ToolMessage) and message.text == "3"
                else message
                for message in request.messages
            ]
            return Request(messages=messages, tools=request.tools, model=request.model, sampling=request.sampling)

    listener = Listener(
        [calling(("add", '{"left": 1, "right": 2}')), calling(("add", '{"left": 2, "right": 2}')), "ok"]
    )
    trace = await run(ChatHarness([add]), listener.model, Private(prompt="go"), gateway=False)
    assert ending(trace) == COMPLETED
    assert [text for role, text in said(trace) if role == "tool"] == ["hidden", "4"]
    assert [spoken(message)[1] for message in listener.requests[-1].messages if message.role == "tool"] == [
        "hidden",
        "4",
    ]
    assert len(trace.branches) == 1


async def test_a_failed_model_call_is_the_models_failure() -> None:
    def overloaded(request: Request) -> str:
        raise ProviderError("overloaded", status_code=503)

    trace = await run(ChatHarness([add]), ScriptedModel(overloaded), Task(prompt="go"), gateway=False)
    assert failure(trace) == ("ProviderError", "overloaded")


async def test_a_tool_that_hangs_is_cut_off_at_the_end_of_the_agent_budget() -> None:
    cancelled: list[str] = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append("hang")
            raise

    trace = await run(
        ChatHarness([hang]),
        ScriptedModel([calling(("hang", ""), ("hang", ""))]),
        Task(prompt="go"),
        gateway=False,
        timeouts=RolloutTimeouts(agent=30),
    )
    kind, message = failure(trace)
    assert (kind, message.startswith("agent timeout: ")) == ("HarnessError", True)
    assert trace.timing.agent is not None
    assert trace.timing.agent.duration == pytest.approx(30)
    assert cancelled == ["hang", "hang"]


async def test_ctrl_c_may_strike_in_a_tool_but_not_in_the_engine_around_it() -> None:
    def plain() -> str:
        return f"protected: {trio.lowlevel.currently_ki_protected()}"

    async def later() -> str:
        await trio.sleep(1)
        return plain()

    told = await chat([plain, later], [calling(("plain", ""), ("later", "")), "ok"])
    assert told[2:4] == [("tool", "protected: False"), ("tool", "protected: False")]


async def test_one_harness_serves_many_rollouts_at_once() -> None:
    async def pause(text: str) -> str:
        await trio.sleep(1)
        return f"paused {text}"

    def answer(request: Request) -> str | Response:
        last = request.messages[-1]
        return f"{last.text}!" if last.role == "tool" else calling(("pause", f'{{"text": "{last.text}"}}'))

    tasks = [Task(prompt=f"q{place}") for place in range(50)]
    async with (
        open_engine(gateway=False) as engine,
        engine.run_all(tasks, harness=ChatHarness([pause]), model=ScriptedModel(answer)) as traces,
    ):
        finished = [trace async for trace in traces]
    assert len(finished) == 50
    for trace in finished:
        prompt = trace.nodes[0].message.text
        assert ending(trace) == COMPLETED
        assert said(trace) == [
            ("user", prompt),
            ("assistant", ""),
            ("tool", f"paused {prompt}"),
            ("assistant", f"paused {prompt}!"),
        ]


def test_tools_that_make_no_sense_are_refused_when_the_harness_is_made() -> None:
    with pytest.raises(ValueError, match="two tools are named add; give one of the functions another name"):
        ChatHarness([add, add])
    with pytest.raises(ValueError, match="max_parallel must be a whole number of at least 1, not 0"):
        ChatHarness([add], max_parallel=0)
    assert repr(ChatHarness([add, fail])) == "<ChatHarness tools=add, fail>"
    assert repr(ChatHarness()) == "<ChatHarness tools=none>"

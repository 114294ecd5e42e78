"""One turn across the model boundary: the order of its hooks, what interceptors may do, what becomes of a failing hook,
hang-ups and re-sent originals (L6, L32-L35, L37)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from rollout_fsm import (
    AssistantMessage,
    Message,
    Request,
    Response,
    Rollout,
    RolloutLimits,
    RolloutTimeouts,
    Sampling,
    SystemMessage,
    TaskError,
    Tool,
    ToolCall,
    ToolMessage,
    Trace,
    TurnRefused,
    Usage,
    UserMessage,
    intercept,
    stop,
)
from rollout_fsm.trace import Rewrite
from tests.world import (
    Act,
    NoHooks,
    World,
    error_types,
    kinds,
    play,
    raises,
    returns,
    sleeps,
    warnings,
    world_task,
)


async def turn(world: World, said: str | None = None) -> Response:
    assert world.session is not None
    return await world.session.turn(said)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def contents(trace: Trace) -> list[str]:
    return [node.message.text for node in trace.nodes]


class Noted(NoHooks):
    """Every kind of hook, each noting that it was called; `fires` names the one that stops."""

    notes: list[str]
    fires: str = ""

    def called(self, name: str) -> bool:
        self.notes.append(name)
        return name == self.fires

    @stop
    def by_trace(self, trace: Trace) -> bool:
        return self.called("by_trace")

    @intercept
    def on_request(self, request: Request) -> None:
        self.called("on_request")

    @stop
    def by_request(self, request: Request) -> bool:
        return self.called("by_request")

    @intercept
    def on_response(self, response: Response) -> None:
        self.called("on_response")

    @stop
    def by_response(self, response: Response) -> bool:
        return self.called("by_response")


def noted(fires: str = "") -> tuple[type, list[str]]:
    notes: list[str] = []
    return type("Hooks", (Noted,), {"notes": notes, "fires": fires}), notes


ORDER = ["by_trace", "on_request", "by_request", "model", "on_response", "by_response"]


@pytest.mark.parametrize(
    ("fires", "called", "turns", "nodes"),
    [
        ("", ORDER, 1, ["hello", "and", "reply"]),
        ("by_trace", ORDER[:1], 0, []),
        ("by_request", ORDER[:3], 0, ["hello", "and"]),
        ("by_response", ORDER, 1, ["hello", "and", "reply"]),
    ],
)
async def test_the_order_of_one_turn_and_what_a_stop_at_each_place_commits(
    fires: str, called: list[str], turns: int, nodes: list[str]
) -> None:
    hooks, notes = noted(fires)

    async def model() -> None:
        notes.append("model")

    world = World(script={"model": model})
    answers: list[object] = []

    async def segment() -> None:
        try:
            answers.append((await turn(world, "and")).message.text)
        except TurnRefused as refused:
            answers.append(refused.condition)

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=hooks))
    assert notes[notes.index("by_trace") :] == called  # the opening messages pass the interceptors before it (L6)
    assert (trace.num_turns, contents(trace)) == (turns, nodes)
    assert answers == [fires or "reply"]
    assert trace.stop_condition == (fires or "agent_completed")
    assert (trace.ok, trace.errors, trace.reward) == (True, [], 1.0)
    assert ("stopping" in [taken.target for taken in trace.transitions]) is bool(fires)


async def test_a_limit_is_asked_before_any_hook() -> None:
    hooks, notes = noted()
    world = World()
    await play(world, task=world_task(world, hooks=hooks), limits=RolloutLimits(max_turns=0))
    assert [note for note in notes if note != "on_request"] == []


async def test_of_several_stops_the_first_in_order_fires_and_no_other_is_asked() -> None:
    notes: list[str] = []

    def hook(name: str, priority: int) -> Any:
        def asked(self: object, trace: Trace) -> bool:
            notes.append(name)
            return True

        asked.__name__ = name
        return stop(priority=priority)(asked)

    hooks = type("Hooks", (NoHooks,), {name: hook(name, at) for at, name in enumerate(("low", "high"))})
    world = World()
    trace = await play(world, task=world_task(world, hooks=hooks))
    assert (notes, trace.stop_condition) == (["high"], "high")


@pytest.mark.parametrize("kind", ["trace", "request", "response"])
@pytest.mark.parametrize("value", [1, 0])
async def test_a_stop_that_returns_a_number_instead_of_a_bool_is_a_task_error(kind: str, value: object) -> None:
    def asked(self: object, crossing: Any) -> object:
        return value

    asked.__annotations__ = {"crossing": {"trace": Trace, "request": Request, "response": Response}[kind]}
    world = World()
    trace = await play(world, task=world_task(world, hooks=type("Hooks", (NoHooks,), {"asked": stop(asked)})))
    assert (error_types(trace), world.state) == (["TaskError"], "failed")
    assert "@stop 'asked'" in trace.errors[0].message
    assert trace.num_turns == 0


# ---- interceptors


def rewriting(change: Callable[[Any], Any], crossing: type = Request, **options: Any) -> type:
    def wrong(self: object, given: Any) -> Any:
        return change(given)

    wrong.__annotations__ = {"given": crossing}
    return type("Hooks", (NoHooks,), {"wrong": intercept(**options)(wrong) if options else intercept(wrong)})


def swap(at: int, message: Message | Callable[[Any], Any]) -> Callable[[Request], Request]:
    def change(request: Request) -> Request:
        messages = list(request.messages)
        if len(messages) < 6:  # the opening passes as it is
            return request
        messages[at] = message(messages[at]) if callable(message) else message
        return evolve(request, messages=messages)

    return change


def on_turn(change: Callable[[Request], object]) -> Callable[[Request], object]:
    return lambda request: change(request) if len(request.messages) == 6 else None


CALL = ToolCall(id="c1", name="look", arguments="{}")
CONVERSATION: tuple[Message, ...] = (
    UserMessage("hello"),
    AssistantMessage(None, tool_calls=(CALL,)),
    ToolMessage("found", tool_call_id="c1", name="look"),
    UserMessage("and"),
)
"""After the system prompt, and followed by a last user message: six messages, of which the last three are new."""

MISUSES: Mapping[str, Callable[[Request], object]] = {
    "adds a message": lambda request: evolve(request, messages=(*request.messages, UserMessage("more"))),
    "removes a message": lambda request: evolve(request, messages=request.messages[:-1]),
    "removes all": lambda request: evolve(request, messages=()),
    "swaps two messages": lambda request: evolve(
        request, messages=(*request.messages[:4], request.messages[5], AssistantMessage("x"))
    ),
    "retypes a user message": swap(5, AssistantMessage("I said that")),
    "retypes a user message as system": swap(5, SystemMessage("obey")),
    "retypes a tool message": swap(3, UserMessage("found")),
    "changes a tool call id": swap(3, lambda message: evolve(message, tool_call_id="c2")),
    "changes a tool's name": swap(3, lambda message: evolve(message, name="listen")),
    "changes the system prompt": swap(0, SystemMessage("be evil")),
    "changes an older user message": swap(1, UserMessage("bye")),
    "changes an assistant message": swap(2, AssistantMessage("no")),
    "changes the tools": lambda request: evolve(request, tools=(Tool(name="shell"),)),
    "changes the sampling": lambda request: evolve(request, sampling=Sampling(temperature=2.0)),
    "changes the model": lambda request: evolve(request, model="better"),
    "returns messages": lambda request: request.messages,
    "returns text": lambda request: "no",
    "returns a response": lambda request: Response(message=AssistantMessage("no")),
    "puts text among the messages": swap(5, "just text"),  # type: ignore[arg-type]
}


def conversation_model(world: World) -> Act:
    """Calls a tool, then says "done"."""

    async def model() -> Response:
        await trio.lowlevel.checkpoint()
        message = AssistantMessage(None, tool_calls=(CALL,)) if len(world.seen) == 1 else AssistantMessage("done")
        return Response(message=message, usage=Usage(prompt_tokens=10, completion_tokens=5))

    return model


async def two_turns(hooks: type, *, swallow: bool = False, **settings: Any) -> tuple[World, Trace, list[str]]:
    """A turn that calls a tool, and one with its result and more."""
    world, told = World(), []

    async def segment() -> None:
        system = SystemMessage("be good")
        await world.exchange.respond(Request(messages=(system, CONVERSATION[0])))
        try:
            await world.exchange.respond(Request(messages=(system, *CONVERSATION, UserMessage("so?"))))
        except TaskError as error:
            told.append(str(error))
            if not swallow:
                raise

    world.script |= {"segment": segment, "model": conversation_model(world)}
    trace = await play(world, task=world_task(world, hooks=hooks, system_prompt="be good"), **settings)
    return world, trace, told


@pytest.mark.parametrize("misuse", MISUSES)
async def test_what_a_request_interceptor_may_not_do_is_a_task_error(misuse: str) -> None:
    world, trace, told = await two_turns(rewriting(on_turn(MISUSES[misuse])))
    assert (error_types(trace), world.state) == (["TaskError"], "failed")
    assert "@intercept 'wrong'" in trace.errors[0].message
    assert told == [trace.errors[0].message]
    assert (trace.num_turns, len(world.seen), trace.request_rewrites) == (1, 1, [])


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (5, UserMessage("so what?")),
        (4, UserMessage("rewritten")),
        (3, ToolMessage("nothing", tool_call_id="c1", name="look")),
    ],
)
async def test_the_content_of_new_user_and_tool_messages_may_be_rewritten(at: int, message: Message) -> None:
    world, trace, _ = await two_turns(rewriting(swap(at, message)))
    assert trace.ok
    assert trace.request_rewrites == [Rewrite("wrong")]
    assert world.seen[1].messages[at] == message
    assert trace.num_turns == 2
    assert texts(world.seen[1].messages)[0] == "be good"
    assert len(trace.branches) == 1


@pytest.mark.parametrize("unchanged", [lambda request: None, lambda request: request, lambda request: evolve(request)])
async def test_an_interceptor_that_changes_nothing_is_not_recorded(unchanged: Callable[[Any], Any]) -> None:
    _, trace, _ = await two_turns(rewriting(unchanged))
    assert (trace.ok, trace.request_rewrites) == (True, [])


async def test_interceptors_go_one_after_the_other_and_each_rewrite_bears_its_name() -> None:
    class Hooks(NoHooks):
        @intercept(priority=2)
        def first(self, request: Request) -> Request:
            return self.add(request, "1")

        @intercept
        def second(self, request: Request) -> Request:
            return self.add(request, "2")

        def add(self, request: Request, mark: str) -> Request:
            *before, last = request.messages
            return evolve(request, messages=(*before, evolve(last, content=last.text + mark)))

    world = World()
    trace = await play(world, task=world_task(world, hooks=Hooks))
    assert contents(trace) == ["hello12", "reply"]
    assert trace.request_rewrites == [Rewrite("first"), Rewrite("second")]


async def test_an_interceptor_gets_a_private_copy() -> None:
    tool = Tool(name="look", parameters={"a": {"b": 1}})

    def spoil(request: Request) -> None:
        for offered in request.tools:
            offered.parameters["a"]["b"] = 2  # type: ignore[index, call-overload]

    world = World()

    async def segment() -> None:
        await world.exchange.respond(Request(messages=(UserMessage("new"),), tools=(tool,)))

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=rewriting(spoil)))
    assert trace.ok
    assert tool.parameters == world.seen[0].tools[0].parameters == {"a": {"b": 1}}


RESPONSE_MISUSES: Mapping[str, Callable[[Response], object]] = {
    "calls a tool": lambda given: evolve(given, message=AssistantMessage("x", tool_calls=(CALL,))),
    "has hidden reasoning": lambda given: evolve(given, message=AssistantMessage("x", reasoning_content="hmm")),
    "has provider state": lambda given: evolve(given, message=AssistantMessage("x", provider_state=({"a": 1},))),
    "changes the usage": lambda given: evolve(given, message=AssistantMessage("x"), usage=None),
    "changes the id": lambda given: evolve(given, message=AssistantMessage("x"), id="other"),
    "changes the model": lambda given: evolve(given, model="other"),
    "returns text": lambda given: "no",
    "returns a message": lambda given: given.message,
    "returns a request": lambda given: Request(messages=()),
    "puts another message in": lambda given: evolve(given, message=UserMessage("x")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("misuse", RESPONSE_MISUSES)
async def test_what_a_response_interceptor_may_not_do_is_a_task_error(misuse: str) -> None:
    world = World()
    trace = await play(world, task=world_task(world, hooks=rewriting(RESPONSE_MISUSES[misuse], Response)))
    assert (error_types(trace), world.state, trace.num_turns) == (["TaskError"], "failed", 0)
    assert "@intercept 'wrong'" in trace.errors[0].message
    assert trace.response_rewrites == []


async def test_a_reply_may_be_replaced_by_inert_text_which_makes_its_finish_reason_stop() -> None:
    world = World(
        script={
            "model": returns(Response(message=AssistantMessage(None, tool_calls=(CALL,)), finish_reason="tool_calls"))
        }
    )
    replies: list[Response] = []

    async def segment() -> None:
        replies.append(await turn(world))

    def veto(given: Response) -> Response:
        return evolve(given, message=AssistantMessage("vetoed"))

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=rewriting(veto, Response)))
    assert [(reply.message, reply.finish_reason) for reply in replies] == [(AssistantMessage("vetoed"), "stop")]
    assert contents(trace) == ["hello", "vetoed"]
    assert trace.response_rewrites == [Rewrite("wrong")]


async def test_a_harness_that_resends_the_original_of_a_rewritten_message_goes_on_with_the_same_branch() -> None:
    world = World()

    def shout(request: Request) -> Request:
        *before, last = request.messages
        return evolve(request, messages=(*before, UserMessage(last.text.upper())))

    async def segment() -> None:
        first = UserMessage("one")
        reply = (await world.exchange.respond(Request(messages=(first,)))).message
        await world.exchange.respond(Request(messages=(first, reply, UserMessage("two"))))

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=rewriting(shout), prompt="unused"))
    assert [texts([node.message for node in branch]) for branch in trace.branches] == [["ONE", "reply", "TWO", "reply"]]
    assert texts(world.seen[1].messages) == ["ONE", "reply", "TWO"]


# ---- the opening and the user's messages: L6


async def test_the_opening_passes_once_and_the_system_prompt_is_shown_first() -> None:
    shown: list[list[str]] = []

    def shout(request: Request) -> Request:
        shown.append(texts(request.messages))
        *before, last = request.messages
        return evolve(request, messages=(*before, UserMessage(last.text + "!")))

    world = World()
    task = world_task(world, hooks=rewriting(shout), system_prompt="be good")
    prompts: list[list[str]] = []

    async def segment() -> None:
        prompts.append(texts(world.exchange.prompt))
        await world.exchange.respond(Request(messages=(SystemMessage("be good"), *world.exchange.prompt)))

    world.script["segment"] = segment
    trace = await play(world, task=task)
    assert shown == [["be good", "hello"]]
    assert prompts == [["hello!"]]
    assert contents(trace) == ["be good", "hello!", "reply"]
    assert trace.request_rewrites == [Rewrite("wrong")]
    assert task.prompt == "hello"


async def test_the_system_prompt_is_not_rewritable_in_the_opening_either() -> None:
    def change(request: Request) -> Request:
        return evolve(request, messages=(SystemMessage("be evil"), *request.messages[1:]))

    world = World()
    trace = await play(world, task=world_task(world, hooks=rewriting(change), system_prompt="be good"))
    assert error_types(trace) == ["TaskError"]
    assert "segment" not in world.began


async def test_a_users_messages_pass_once_before_the_harness_sees_them() -> None:
    shown: list[list[str]] = []

    def shout(request: Request) -> Request:
        shown.append(texts(request.messages))
        *before, last = request.messages
        return evolve(request, messages=(*before, UserMessage(last.text + "!")))

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        await rollout.step()
        await rollout.step("and")
        await rollout.close()

    world = World()
    trace = await play(world, task=world_task(world, hooks=rewriting(shout)), drive=drive, has_user=True)
    assert shown == [["hello"], ["hello!", "reply", "and"]]
    assert world.said == [None, (UserMessage("and!"),)]
    assert contents(trace) == ["hello!", "reply", "and!", "reply"]
    assert len(trace.request_rewrites) == 2


async def test_a_users_message_whose_interception_fails_fails_the_rollout() -> None:
    def picky(request: Request) -> None:
        if request.messages[-1].text == "and":
            raise ValueError("not that")

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        await rollout.step()
        assert await rollout.step("and") is False
        await rollout.close()

    world = World()
    trace = await play(world, task=world_task(world, hooks=rewriting(picky)), drive=drive, has_user=True)
    assert error_types(trace) == ["TaskError"]
    assert world.began.count("segment") == 1


# ---- a failing hook: L35, L37


def hook_that(act: Act, kind: str) -> type:
    async def broken(self: object, crossing: Any) -> object:
        if kind.startswith("request") and len(getattr(crossing, "messages", ())) == 1:
            return None if kind == "request interceptor" else False  # the opening passes
        return await act()

    crossing = {"trace": Trace, "request": Request, "response": Response}[kind.split()[0]]
    broken.__annotations__ = {"crossing": crossing}
    return type("Hooks", (NoHooks,), {"broken": (stop if kind.endswith("stop") else intercept)(broken)})


HOOKS = ("trace stop", "request interceptor", "request stop", "response interceptor", "response stop")


async def with_hook(act: Act, kind: str, *, harness: Callable[[World], Act] | None = None) -> tuple[World, Trace]:
    world = World()

    async def segment() -> None:
        await turn(world, "second")

    world.script["segment"] = segment if harness is None else harness(world)
    bounds = RolloutTimeouts(hook=4, agent=1000)
    return world, await play(world, task=world_task(world, hooks=hook_that(act, kind)), timeouts=bounds)


@pytest.mark.parametrize("kind", HOOKS)
async def test_a_hook_that_returns_at_the_very_end_of_its_bound_has_timed_out(kind: str) -> None:
    world, trace = await with_hook(sleeps(4), kind)
    assert (error_types(trace), world.state) == (["TaskError"], "failed")
    assert "'broken' timed out after 4 s" in trace.errors[0].message
    assert trace.num_turns == 0
    assert world.began.count("runtime.kill") == 1


@pytest.mark.parametrize("kind", HOOKS)
async def test_the_call_is_answered_with_the_error_and_nothing_that_follows_saves_the_rollout(kind: str) -> None:
    told: list[str] = []
    failed: list[int] = []

    async def once() -> object:
        await trio.lowlevel.checkpoint()
        if not failed:
            failed.append(1)
            raise ValueError("oh")
        return False if kind.endswith("stop") else None

    def harness(world: World) -> Act:
        async def segment() -> None:
            with trio.CancelScope(shield=True):
                try:
                    await turn(world, "second")
                except TaskError as error:
                    told.append(str(error))
                await turn(world, "third")  # a later call that succeeds

        return segment

    world, trace = await with_hook(once, kind, harness=harness)
    assert (error_types(trace), world.state) == (["TaskError"], "failed")
    assert told == [trace.errors[0].message]


async def test_a_failing_hook_interrupts_a_harness_that_makes_nothing_of_it() -> None:
    async def segment_of(world: World) -> None:
        try:
            await turn(world, "second")
        except TaskError:
            await trio.sleep_forever()

    started = trio.current_time()
    world, trace = await with_hook(raises(ValueError), "trace stop", harness=lambda world: lambda: segment_of(world))
    assert trio.current_time() == started
    assert (error_types(trace), world.state) == (["TaskError"], "failed")


@pytest.mark.parametrize("kind", ["response interceptor"])
@pytest.mark.parametrize("act", [raises(ValueError, "oh"), trio.sleep_forever])
async def test_while_the_exchange_is_being_stopped_a_failing_hook_is_a_warning(kind: str, act: Act) -> None:
    answers: list[type] = []

    def harness(world: World) -> Act:
        world.script["model"] = sleeps(2)

        async def admitted() -> None:
            try:
                await turn(world, "second")
            except TaskError as error:
                answers.append(type(error))

        async def segment() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(admitted)
                await trio.testing.wait_all_tasks_blocked()
                world.rollout.stop("enough")
                with pytest.raises(TurnRefused):
                    await world.exchange.respond(Request(messages=world.exchange.prompt))

        return segment

    _world, trace = await with_hook(act, kind, harness=harness)
    assert (trace.ok, trace.stop_condition, trace.errors) == (True, "enough", [])
    assert kinds(trace) == ["after_stop"]
    assert "'broken'" in warnings(trace)[0]
    assert answers == [TaskError]
    assert trace.num_turns == 0


async def test_a_call_that_was_admitted_before_a_refusal_keeps_its_interceptors_and_its_stops_are_asked_no_more() -> (
    None
):
    hooks, notes = noted()
    world = World(script={"model": sleeps(2)})

    async def admitted() -> None:
        await turn(world, "second")

    async def segment() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(admitted)
            await trio.testing.wait_all_tasks_blocked()
            notes.clear()
            world.rollout.stop("enough")
            with pytest.raises(TurnRefused):
                await world.exchange.respond(Request(messages=world.exchange.prompt))
            assert notes == []  # no hook runs for a refused turn

    world.script["segment"] = segment
    trace = await play(world, task=world_task(world, hooks=hooks))
    assert notes == ["on_response"]
    assert (trace.num_turns, trace.stop_condition) == (1, "enough")


# ---- hang-ups: L33


def hang_up_at(seconds: float, *, model: float, hook: float, then: float, world: World) -> Act:
    """A harness that gives its call up after some seconds and lives on for some more."""
    world.script["model"] = sleeps(model)

    async def segment() -> None:
        with trio.move_on_after(seconds) as scope:
            await turn(world)
        assert scope.cancelled_caught
        await trio.sleep(then)

    return segment


class SlowCheck(NoHooks):
    """A response interceptor that takes five seconds."""

    @intercept
    async def check(self, response: Response) -> Response:
        await trio.sleep(5)
        return evolve(response, message=AssistantMessage("checked"))


@pytest.mark.parametrize(
    ("seconds", "then", "turns"),
    [
        (1, 100, 0),  # before the model has answered: the call is cancelled
        (3, 100, 1),  # after it: hooks and commit go on
        (3, 1, 0),  # the segment ends before the hooks do: nothing is committed
    ],
)
async def test_a_harness_that_hangs_up_cancels_its_call_until_the_model_has_answered(
    seconds: float, then: float, turns: int
) -> None:
    world = World()
    world.script["segment"] = hang_up_at(seconds, model=2, hook=5, then=then, world=world)
    started = trio.current_time()
    trace = await play(world, task=world_task(world, hooks=SlowCheck))
    assert trio.current_time() - started == seconds + then
    assert (trace.ok, trace.num_turns) == (True, turns)
    assert contents(trace) == (["hello", "checked"] if turns else [])
    assert ("model" in world.ended) is (seconds == 3)


async def test_a_hook_that_fails_after_the_harness_hung_up_still_fails_the_rollout() -> None:
    class Fails(NoHooks):
        @intercept
        async def check(self, response: Response) -> None:
            await trio.sleep(5)
            raise ValueError("no")

    world = World()
    world.script["segment"] = hang_up_at(3, model=2, hook=5, then=100, world=world)
    started = trio.current_time()
    trace = await play(world, task=world_task(world, hooks=Fails))
    assert trio.current_time() - started == 2 + 5
    assert (error_types(trace), world.state) == (["TaskError"], "failed")


async def test_a_response_stop_that_fires_after_a_hang_up_stops_the_exchange() -> None:
    class Stops(SlowCheck):
        @stop
        def enough(self, response: Response) -> bool:
            return True

    world = World()
    world.script["segment"] = hang_up_at(3, model=2, hook=5, then=50, world=world)
    trace = await play(world, task=world_task(world, hooks=Stops))
    assert (trace.ok, trace.stop_condition, trace.num_turns) == (True, "enough", 1)


# ---- what reaches the model


async def test_the_runs_sampling_wins_over_the_requests() -> None:
    seen: list[Sampling] = []
    world = World()

    async def segment() -> None:
        asked = Sampling(temperature=0.1, max_tokens=7)
        await world.exchange.respond(Request(messages=world.exchange.prompt, sampling=asked))

    from tests.world import EchoModel

    class Watched(EchoModel):
        async def respond(self, request: Request, sampling: Sampling) -> Response:
            seen.append(sampling)
            return await super().respond(request, sampling)

    world.script["segment"] = segment
    trace = await play(world, model=Watched(world), sampling=Sampling(temperature=0.9, seed=1))
    assert seen == [Sampling(temperature=0.9, seed=1, max_tokens=7)]
    assert trace.calls[0].sampling == seen[0]


async def test_every_call_is_on_the_trace_committed_or_not() -> None:
    class Vetoes(NoHooks):
        @intercept
        def check(self, response: Response) -> None:
            if response.message.text == "bad":
                raise ValueError("no")

    world = World(script={"model": returns("bad")})
    trace = await play(world, task=world_task(world, hooks=Vetoes))
    assert [(call.node, call.usage) for call in trace.calls] == [(None, Usage(prompt_tokens=10, completion_tokens=5))]
    assert trace.usage == Usage(prompt_tokens=10, completion_tokens=5)
    assert trace.num_output_tokens == 0


async def test_an_answer_that_came_although_its_call_was_cut_off_is_not_committed_and_its_tokens_count() -> None:
    async def answers_all_the_same() -> object:
        with suppress(trio.Cancelled):
            await trio.sleep_forever()
        return "too late"

    world = World()
    world.script["segment"] = hang_up_at(1, model=2, hook=0, then=5, world=world)
    world.script["model"] = answers_all_the_same
    trace = await play(world)
    assert [(call.node, call.usage) for call in trace.calls] == [(None, Usage(prompt_tokens=10, completion_tokens=5))]
    assert (trace.num_turns, trace.num_output_tokens, trace.usage.completion_tokens) == (0, 0, 5)

"""A harness in this process: it talks to the model and runs the tools that the model calls, until it calls none.

A tool that fails is the model's to deal with: unknown names, arguments that do not fit and exceptions become results,
never a failure of the rollout. A refused turn and a failed model call pass on: they are the engine's to judge.
"""

from collections.abc import Callable, Iterable, Sequence

import trio
from attrs import define, field

from rollout_fsm.function_tool import FunctionTool, told
from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.harnesses.served_tools import ServedTools
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import Message, Request, SystemMessage, ToolCall, ToolMessage

__all__ = ["ChatHarness"]


def _tools(functions: Iterable[Callable[..., object]]) -> dict[str, FunctionTool]:
    tools: dict[str, FunctionTool] = {}
    for tool in map(FunctionTool.of, functions):
        if tool.name in tools:
            raise ValueError(f"two tools are named {tool.name}; give one of the functions another name")
        tools[tool.name] = tool
    return tools


def _positive(_harness: object, _field: object, value: float) -> None:
    if not value > 0:
        raise ValueError(f"tool_timeout must be a number of seconds above 0, not {value!r}")


def _at_least_one(_harness: object, _field: object, value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"max_parallel must be a whole number of at least 1, not {value!r}")


@define(eq=False, repr=False)
class ChatHarness(Harness):
    """A chat loop with tools: `ChatHarness([search, add])`.

    `tools` are plain functions, sync or async; the model is shown their names, docstrings and annotations. It is shown
    the tools of the rollout's tool servers too, under their own names; where two have one name, those of servers are
    called `server__tool`. The calls of one reply are run in order; those of async functions and of tool servers go on
    side by side, at most `max_parallel` calls at once. A plain function runs inline and must not block. A tool server
    has `tool_timeout` seconds to answer a call (its own bound is usually shorter). The system prompt comes first, and
    the conversation goes on from segment to segment. Needs no gateway.
    """

    tools: dict[str, FunctionTool] = field(default=(), converter=_tools)
    max_parallel: int = field(default=8, kw_only=True, validator=_at_least_one)
    tool_timeout: float = field(default=600.0, kw_only=True, validator=_positive)

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """A conversation of its own for each rollout, with the tools of its tool servers. Raises `ToolsetError` for one
        that cannot be asked for them."""
        system = exchange.system_prompt
        opening: tuple[Message, ...] = exchange.prompt if system is None else (SystemMessage(system), *exchange.prompt)
        served = await ServedTools.open(exchange, taken=self.tools, timeout=self.tool_timeout)
        return _ChatSession(self, exchange, served, opening)

    def __repr__(self) -> str:
        return f"<ChatHarness tools={', '.join(self.tools) or 'none'}>"


@define(eq=False, repr=False)
class _ChatSession(HarnessSession):
    _harness: ChatHarness
    _exchange: Exchange
    _served: ServedTools
    _conversation: tuple[Message, ...]

    async def run(self, messages: Sequence[Message] | None) -> None:
        """Talk until the model answers without calling a tool."""
        self._conversation += tuple(messages or ())
        tools = (*(tool.tool for tool in self._harness.tools.values()), *self._served.tools)
        while True:
            response = await self._exchange.respond(Request(messages=self._conversation, tools=tools))
            self._conversation += (response.message,)
            if not response.message.tool_calls:
                return
            self._conversation += await self._results(response.message.tool_calls)

    async def close(self) -> None:
        """Close the connections to the tool servers."""
        await self._served.close()

    async def _results(self, calls: Sequence[ToolCall]) -> tuple[ToolMessage, ...]:
        """The results of the calls of one reply, in the order of the calls."""
        results: dict[int, str] = {}
        places = trio.CapacityLimiter(self._harness.max_parallel)

        async def run(place: int, call: ToolCall) -> None:
            try:
                results[place] = await self._result(call)
            finally:
                places.release_on_behalf_of(place)

        async with trio.open_nursery() as nursery:
            for place, call in enumerate(calls):
                await places.acquire_on_behalf_of(place)
                function = self._harness.tools.get(call.name)
                if function is None or function.is_async:
                    nursery.start_soon(run, place, call)
                else:
                    await run(place, call)
        return tuple(
            ToolMessage(results[place], tool_call_id=call.id, name=call.name) for place, call in enumerate(calls)
        )

    async def _result(self, call: ToolCall) -> str:
        functions = self._harness.tools
        try:
            if call.name in functions:
                return await functions[call.name].call(call.arguments)
            if call.name in self._served.names:
                return await self._served.call(call)
        except Exception as error:  # noqa: BLE001  (a tool may raise anything, and the model is told)
            return told(error)
        known = [*functions, *self._served.names]
        return f"Error: there is no tool {call.name!r}{suggestion(call.name, known) if known else ''}"

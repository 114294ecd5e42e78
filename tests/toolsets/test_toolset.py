"""The `@tool` methods of a class: which ones are tools, what a model is shown of them, what they are given besides."""

from collections.abc import Mapping, MutableMapping
from typing import Annotated, Any

import pytest
from attrs import frozen

from rollout_fsm import RolloutContext, Runtime, Task, Toolset, Trace, tool
from rollout_fsm.function_tool import ArgumentsError
from rollout_fsm.messages import Tool
from rollout_fsm.toolset import available, tools_of
from tests.toolsets.rollouts import context


class Shop(Toolset):
    stock: int = 3

    @tool
    def price(self, item: Annotated[str, "what is bought"], pieces: int = 1) -> float:
        """What something costs."""
        return 2.5 * pieces * len(item)

    @tool(name="in_stock", description="How many there are.")
    async def amount(self) -> int:
        """Not shown."""
        return self.stock

    def helper(self) -> str:
        """No tool."""
        return "no"


def test_a_model_is_shown_the_decorated_methods_and_no_others() -> None:
    assert [found.tool for found in tools_of(Shop()).values()] == [
        Tool(name="in_stock", description="How many there are.", parameters=schema({}, [])),
        Tool(
            name="price",
            description="What something costs.",
            parameters=schema(
                {
                    "item": {"type": "string", "description": "what is bought"},
                    "pieces": {"type": "integer", "default": 1},
                },
                ["item"],
            ),
        ),
    ]


def schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def test_the_most_derived_method_is_the_tool_and_an_undecorated_override_is_none() -> None:
    class Outlet(Shop):
        @tool
        def price(self, item: str) -> float:
            """Half of it."""
            return 1.0

        async def amount(self) -> int:
            return 0

    assert [(name, found.tool.description) for name, found in tools_of(Outlet()).items()] == [("price", "Half of it.")]


async def test_a_tool_is_called_on_its_object_which_may_be_any_class() -> None:
    @frozen
    class Records(Toolset):
        size: int

        @tool
        def count(self) -> int:
            return self.size

    assert await tools_of(Records(size=7))["count"].run({}) == 7


class Everything(Toolset):
    @tool
    def all_of_it(
        self,
        first: int,
        task: Task,
        trace: Trace,
        runtime: Runtime,
        state: dict[str, object],
        last: str = "end",
    ) -> list[object]:
        return [first, task, trace, runtime, state, last]

    @tool
    def however(self, record: Trace, state, task: "Task", runtime: Any = None) -> list[object]:  # type: ignore[no-untyped-def]
        return [record, state, task, runtime]

    @tool
    def mapped(self, *, state: MutableMapping[str, object], trace: object) -> list[object]:
        return [state, trace]

    @tool
    def read(self, state: Mapping[str, object] | None = None) -> object:
        return state


async def test_what_a_tool_names_of_its_rollout_it_is_given_and_the_model_is_not_shown() -> None:
    rollout = context()
    tools, given = tools_of(Everything()), available(rollout)
    of_it = {"task": rollout.task, "trace": rollout.trace, "runtime": rollout.runtime, "state": rollout.trace.state}
    assert given == of_it
    assert tools["all_of_it"].tool.parameters == schema(
        {"first": {"type": "integer"}, "last": {"type": "string", "default": "end"}}, ["first"]
    )
    assert await tools["all_of_it"].run({"first": 1}, given) == [1, *of_it.values(), "end"]
    assert await tools["however"].run({}, given) == [
        rollout.trace,
        rollout.trace.state,
        rollout.task,
        rollout.runtime,
    ]
    assert await tools["mapped"].run({}, given) == [rollout.trace.state, rollout.trace]
    assert tools["mapped"].tool.parameters == schema({}, [])


async def test_a_model_cannot_give_what_is_the_rollouts() -> None:
    with pytest.raises(ArgumentsError, match=r"trace: there is no such argument.*first: it is required"):
        await tools_of(Everything())["all_of_it"].run({"trace": {}}, available(context()))


class Place(Toolset):
    @tool
    def weather(self, city: str, state: str) -> str:
        return f"{city}, {state}"


class Optionally(Toolset):
    @tool
    def one(self, task: int | None = None) -> str:
        return str(task)


class Nothing(Toolset):
    def unmarked(self) -> None: ...


class Twice(Toolset):
    @tool(name="same")
    def one(self) -> None: ...

    @tool
    def same(self) -> None: ...


class Static(Toolset):
    @tool
    @staticmethod
    def one() -> None: ...


class Property(Toolset):
    @property
    @tool
    def one(self) -> None: ...


class Strange(Toolset):
    @tool
    def one(self, value: complex) -> None: ...


class Misnamed(Toolset):
    @tool(name="not a name")
    def one(self) -> None: ...


@pytest.mark.parametrize(
    ("toolset", "why"),
    [
        (Place, r"tool weather, argument state: .* is given the rollout's own state; rename it"),
        (Optionally, r"tool one, argument task: .* is given the rollout's own task"),
        (Nothing, r"Nothing has no @tool methods, and no start\(\) of its own"),
        (Twice, r"Twice: two tools are named same"),
        (Static, r"@tool Static.one: a tool is a method, not a staticmethod"),
        (Property, r"@tool Property.one: a tool is a method, not a property"),
        (Strange, r"tool one, argument value: complex has no counterpart in JSON"),
        (Misnamed, r"a tool is a function with a name of letters"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(toolset: type[Toolset], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        tools_of(toolset())


async def test_a_toolset_outside_of_an_engine_says_that_it_needs_one() -> None:
    given = context()
    with pytest.raises(TypeError, match="Shop needs an engine to serve its tools"):
        await Shop().start(RolloutContext(task=given.task, trace=given.trace, runtime=given.runtime))

"""The matrix itself: no door of a contract is left out, every door is really gone through, every fault does what its
data say, and a difference in any part of an outcome is found."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import pytest
import trio
from attrs import evolve, fields

from rollout_fsm import Harness, HarnessSession, Judge, Model, Runtime, Task, Toolset, load_machine
from rollout_fsm.errors import leaves
from rollout_fsm.hooks import Hooks
from rollout_fsm.observers import EVENTS
from rollout_fsm.settings import AgentSettings, OneRollout
from tests.doors.cells import CELLS
from tests.doors.doors import BROKEN, BY_NAME, DOORS, EVERY, NO_DOORS, PATH, Door
from tests.doors.expected import BY_MEANS, expected
from tests.doors.faults import FAULTS, RAISING, Fault
from tests.doors.house import SCENES, House
from tests.doors.invariants import broken_invariants, by_kind, differences
from tests.doors.parties import HouseHarness, HouseModel
from tests.doors.played import play, stray
from tests.doors.rules import Expected, Said

CONTRACTS = (Runtime, Harness, HarnessSession, Task, Toolset, Model, Judge)
OF = {door.of for door in EVERY}


def public(contract: type) -> Iterator[str]:
    """What a contract asks of an embedder: methods, properties, and attributes that are declared but not given."""
    data = {field.name for field in fields(contract)} if attrs.has(contract) else set()
    for name in {*vars(contract), *inspect.get_annotations(contract)}:
        if not name.startswith("_") and name not in data:
            yield f"{contract.__name__}.{name}"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_everything_public_of_a_contract_is_a_door_or_is_said_to_be_none(contract: type) -> None:
    parts = {*public(contract)}
    assert parts <= OF | NO_DOORS.keys()
    assert not OF & NO_DOORS.keys()


def test_no_door_is_of_a_part_that_no_contract_has() -> None:
    parts = {part for contract in CONTRACTS for part in public(contract)}
    ours = {door.of for door in EVERY if door.of.split(".")[0] in {contract.__name__ for contract in CONTRACTS}}
    entered = {f"{kind}.__{way}__" for kind in ("Harness", "Model") for way in ("aenter", "aexit")}
    assert ours - entered == parts - NO_DOORS.keys()
    assert entered <= ours
    assert all(issubclass(shared, AbstractAsyncContextManager) for shared in (HouseHarness, HouseModel))


def test_every_place_of_a_hook_or_a_signal_is_a_door() -> None:
    assert {f"Hooks.{field.name}" for field in fields(Hooks)} | {"Hooks.metrics of a harness"} == {
        door.of for door in BROKEN if door.of.startswith("Hooks.")
    }


def test_every_event_of_an_observer_is_a_door_and_so_is_every_transition_of_the_path() -> None:
    assert {f"observer.{event}" for event in EVENTS} == {door.of for door in EVERY if door.means == "log"}
    states = load_machine().states
    watched = {door.state for door in BROKEN if door.of == "observer.on_transition"}
    assert {door.state for door in BROKEN if door.of == "observer.on_activity"} == watched - {"completed"}
    assert watched == {
        name
        for name, state in states.items()
        if state.group in ("opening", "exchange", "closing") and name != "created"
    } - {"stopping", "stopped"}


def test_whatever_a_caller_can_pass_that_is_code_is_a_door() -> None:
    code = {
        "harness": "Harness.setup", "model": "Model.respond", "runtime": "a RuntimeFactory",
        "tools": "a factory of tools=", "judges": "Judge.score", "observers": "observer.on_trace",
        "retry": "RetryPolicy.backoff",
    }  # fmt: skip
    data = {"limits", "timeouts", "policy", "sampling", "id", "group"}
    assert {*AgentSettings.__annotations__, *OneRollout.__annotations__} == code.keys() | data
    assert {*code.values()} <= OF


@pytest.mark.parametrize("scene", SCENES)
async def test_every_door_is_gone_through_where_nothing_is_wrong(scene: str) -> None:
    played = await play(Door(name="none", of="", state="", noted=False, scene=scene), Fault(name="nothing"))
    assert broken_invariants(played) == []
    here = {door.name for door in BROKEN if door.scene == scene}
    assert here <= played.house.looked
    if scene == "plain":
        steps = [step for step in played.house.began if not step.endswith(".leave")]
        assert by_kind(steps) == by_kind(PATH)
        assert differences(played, Expected()) == []


@pytest.mark.parametrize("fault", RAISING, ids=lambda fault: fault.name)
async def test_a_fault_raises_what_its_data_say(fault: Fault) -> None:
    house = House(kept=[await stray() for _ in range(3)])
    if not fault.is_async:
        assert not inspect.isawaitable(fault.called(house))
        return
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        await fault.awaited(house)
    found = [leaf for leaf in leaves(raised.value) if not isinstance(leaf, trio.Cancelled)]
    kinds = [leaf.type for leaf in fault.raised] + [fault.interrupt] * bool(fault.interrupt)
    assert [type(leaf).__name__ for leaf in found] == kinds
    assert fault.stray is (found == [])
    if fault.name != "fails in a nursery of its own":
        assert type(raised.value).__name__ == fault.comes_as


def test_every_meaning_has_a_rule_and_a_door_and_every_fault_a_cell() -> None:
    assert {door.means for door in DOORS} == BY_MEANS.keys()
    assert {fault.name for _, fault in CELLS} == {fault.name for fault in FAULTS}
    assert len({(door.name, fault.name) for door, fault in CELLS}) == len(CELLS) > 1_000


def test_what_falls_due_is_a_release_and_every_release_falls_due() -> None:
    assert {door.due for door in DOORS if door.due} == {door.name for door in DOORS if door.means == "warning"}


OTHERWISE: dict[str, Any] = {
    "state": "aborted", "stop": "asked", "errors": (), "warnings": (Said("close"),), "raised": "ValueError",
    "left_by": "SystemExit", "calls": (PATH,), "measured": ("judge.score",), "unmeasured": ("reward",), "seconds": 1.0,
    "log": (Said("ERROR"),), "minted": False,
}  # fmt: skip


@pytest.mark.parametrize("part", [field.name for field in fields(Expected)])
async def test_a_difference_in_any_part_of_an_outcome_is_found(part: str) -> None:
    door, fault = BY_NAME["task.finalize"], RAISING[0]
    want, played = expected(door, fault), await play(door, fault)
    assert differences(played, want) == []
    assert differences(played, evolve(want, **{part: OTHERWISE[part]})) != []

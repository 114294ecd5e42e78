"""A task's network policy: in its row, in its hash, on its trace, and with its runtime before anything is started."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from rollout_fsm import (
    ChatHarness,
    LocalRuntime,
    NetworkPolicy,
    ProgramResult,
    Runtime,
    SandboxError,
    ScriptedModel,
    Task,
    Trace,
    open_engine,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.messages import JSON
from rollout_fsm.rows import FormatError, structure_task, task_row
from rollout_fsm.runtime import Route

POLICY = NetworkPolicy(["example.org:443"], block=["*.ads.example"])


class Box(Runtime):
    """Writes down what is asked of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[object] = []

    @property
    def stopped(self) -> bool:
        return False

    async def start(self) -> None:
        self.asked.append("start")

    async def stop(self) -> None:
        self.asked.append("stop")

    async def run(self, argv: Sequence[str], **_: Any) -> ProgramResult:
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        raise NotImplementedError

    async def write(self, path: str, data: bytes | str) -> None:
        raise NotImplementedError

    async def prepare_setup(self) -> None:
        self.asked.append("prepare_setup")

    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        self.asked.append("prepare_execution")


class Isolated(Box):
    answer: object = None

    def restrict(self, network: NetworkPolicy | None) -> Any:
        self.asked.append(network)
        return self.answer


async def played(task: Task, runtime: Any) -> Trace:
    async with open_engine(gateway=False) as engine:
        return await engine.run(task, harness=ChatHarness(), model=ScriptedModel(["done"]), runtime=runtime)


# ---- in booting


async def test_an_owned_runtime_has_the_policy_before_it_is_started() -> None:
    boxes: list[Isolated] = []

    def make(name: str) -> Runtime:
        boxes.append(Isolated(name))
        return boxes[0]

    assert (await played(Task(prompt="go", network=POLICY), make)).ok
    assert boxes[0].asked == [POLICY, "start", "prepare_setup", "prepare_execution", "stop"]


async def test_a_borrowed_runtime_has_it_before_it_is_used() -> None:
    box = Isolated("lent")
    assert (await played(Task(prompt="go", network=POLICY), box)).ok
    assert box.asked == [POLICY, "prepare_execution"]


async def test_a_borrowed_runtime_is_told_of_each_task_whether_it_has_one() -> None:
    box = Isolated("lent")
    assert (await played(Task(prompt="go", network=POLICY), box)).ok
    assert (await played(Task(prompt="go"), box)).ok
    assert box.asked == [POLICY, "prepare_execution", None, "prepare_execution"]


async def test_a_task_without_one_asks_nothing_of_a_runtime_that_could_not_hold_to_it() -> None:
    box = Box("lent")
    assert (await played(Task(prompt="go"), box)).ok
    assert box.asked == ["prepare_execution"]


async def test_a_runtime_that_cannot_hold_programs_to_a_policy_refuses_before_it_is_started() -> None:
    boxes: list[Box] = []

    def make(name: str) -> Runtime:
        boxes.append(Box(name))
        return boxes[0]

    for runtime in (make, lent := Box("lent")):
        trace = await played(Task(prompt="go", network=NetworkPolicy()), runtime)
        (error,) = trace.errors
        assert error.type == "SandboxError"
        assert error.message == (
            "Box cannot hold programs to a network policy; run the task in an isolated runtime (BubblewrapRuntime), or "
            "take the policy away"
        )
        assert trace.timing.setup is None
        assert not trace.ok
    assert boxes[0].asked == lent.asked == []


@pytest.mark.real_time
async def test_a_local_runtime_refuses_and_makes_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trace = await played(Task(prompt="go", network=NetworkPolicy([])), LocalRuntime)
    assert [error.message.partition(";")[0] for error in trace.errors] == [
        "LocalRuntime cannot hold programs to a network policy"
    ]
    assert os.listdir(tmp_path) == []
    with pytest.raises(SandboxError, match="LocalRuntime cannot hold programs to a network policy"):
        LocalRuntime("box").restrict(POLICY)


async def test_a_restriction_that_is_still_to_be_awaited_is_none() -> None:
    box = Isolated("lent")
    box.answer = object()
    (error,) = (await played(Task(prompt="go", network=POLICY), box)).errors
    assert error.type == "SandboxError"
    assert "restricting the runtime to the task's network policy failed" in error.message
    assert "restrict() of Isolated returned object; it returns nothing" in error.message


# ---- in its row


@frozen(kw_only=True)
class Sum(Task):
    answer: str = "4"


@pytest.mark.parametrize("policy", [POLICY, NetworkPolicy(), NetworkPolicy([]), NetworkPolicy(block=["10.0.0.0/8"])])
def test_a_row_has_the_policy_and_is_read_back(policy: NetworkPolicy) -> None:
    task = Sum(prompt="2 + 2?", network=policy)
    assert structure_task(Sum, task_row(task)) == task


def test_a_row_says_what_is_allowed_and_blocked() -> None:
    row: dict[str, JSON] = {"network": {"allow": ["example.org:443"], "block": ["*.ads.example"]}}
    assert structure_task(Task, row).network == POLICY
    assert task_row(Task(network=POLICY)) == row
    assert structure_task(Task, {"network": {}}).network == NetworkPolicy()
    assert structure_task(Task, {"network": {"allow": []}}).network == NetworkPolicy(())


def test_every_fault_of_a_policy_in_a_row_is_told() -> None:
    with pytest.raises(FormatError) as error:
        structure_task(Task, {"network": {"allow": ["http://x"], "block": ["?"], "deny": []}})
    assert error.value.faults == (
        "network.allow: allow[0] of the network policy, 'http://x': it is a URL; name the host alone, such as "
        '"example.org" or "example.org:443"',
        "network.block: block[0] of the network policy, '?': '?' is no host: neither a name nor an address",
        "network.deny: unknown key; there are allow, block",
    )
    wrongs: list[JSON] = ["example.org", ["example.org"], {"allow": "example.org"}, {"allow": [7]}, {"block": None}]
    for wrong in wrongs:
        with pytest.raises(FormatError, match="the row does not fit Task: network"):
            structure_task(Task, {"network": wrong})


def test_what_is_no_policy_is_refused_where_the_task_is_made() -> None:
    with pytest.raises(TypeError, match="network is a NetworkPolicy, not "):
        Task(network=["example.org"])  # type: ignore[arg-type]


def test_the_policy_is_content_and_its_absence_is_not() -> None:
    task = Sum(prompt="2 + 2?")
    assert Task(prompt="x").hash == "daca14f5bcdf230365c5235c4cac163b"
    hashes = [evolve(task, network=policy).hash for policy in (None, POLICY, NetworkPolicy(), NetworkPolicy([]))]
    assert len({*hashes}) == 4
    assert hashes[0] == task.hash


async def test_the_trace_has_the_policy_and_reads_it_back() -> None:
    trace = await played(Task(prompt="go", network=POLICY), Isolated("lent"))
    assert trace.task.data["network"] == {"allow": ["example.org:443"], "block": ["*.ads.example"]}
    read = trace_from_json(trace_to_json(trace))
    assert structure_task(Task, read.task.data) == Task(prompt="go", network=POLICY)

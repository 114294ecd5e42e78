"""A hostile harness gets nothing, and its end is on time, as root and as an ordinary user."""

import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, frozen

from rollout_fsm import (
    BoxLimits,
    BubblewrapRuntime,
    Engine,
    Exchange,
    Harness,
    HarnessSession,
    Message,
    ProgramHarness,
    RolloutTimeouts,
    Runtime,
    ScriptedModel,
    Task,
    Trace,
    open_engine,
    reward,
)
from tests.runtimes.bubblewrap.boxes import bell, box, folder, with_argument

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("bubblewrap", "temporary")]
HOSTILE = Path(__file__).with_name("hostile.py").read_text()
SECRET = "sk-the-engines-own-secret"
LIMITS = BoxLimits(processes=30, workspace=32 << 20, cpu_time=60)


@frozen(kw_only=True)
class Watched(Task):
    """A task that looks into the box when the harness is gone."""

    @reward
    async def untouched(self, runtime: Runtime, trace: Trace) -> float:
        """What the harness did to the files harms nobody who reads them."""
        for name in ("link", "self", "zero", "up/etc/passwd", "pipe"):
            for use in (partial(runtime.read, name), partial(runtime.write, name, "x")):
                with pytest.raises(OSError, match=r"leads out|not a regular file"):
                    await use()
        trace.state["got"] = json.loads(await runtime.read("got.json"))
        return 1.0


@define(eq=False)
class Neighbour(Harness):
    """A harness that does nothing, and whose secret is worth having."""

    secret: str = ""

    @property
    def name(self) -> str:
        return "neighbour"

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """Remember the secret."""
        self.secret = exchange.secret
        return Idle()


class Idle(HarnessSession):
    async def run(self, messages: Sequence[Message] | None) -> None:
        """Do nothing."""


@define(eq=False)
class World:
    """What there is around a hostile harness that it could want."""

    engine: Engine
    victim: BubblewrapRuntime
    wanted: dict[str, Any]
    box: BubblewrapRuntime | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """How the hostile harness is run."""
        return {
            "harness": ProgramHarness(["{python}", "-c", HOSTILE, json.dumps(self.wanted), "{prompt}"]),
            "model": ScriptedModel(["its own answer"]),
            "runtime": self.make,
        }

    def make(self, name: str) -> BubblewrapRuntime:
        """The box of the hostile harness."""
        self.box = BubblewrapRuntime(name, limits=LIMITS, grace=0.05)
        return self.box

    async def unharmed(self) -> None:
        """What is around is as it was, and nothing of the harness is left."""
        assert (await self.victim.run(["sh", "-c", "cat file; kill -0 $(cat pid)"])).stdout == "secret\n"
        assert with_argument(json.dumps(self.wanted)) == []


@asynccontextmanager
async def world(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world for a harness that ends like this."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "secret").write_text("of the host")
    neighbour = Neighbour()
    with socket.socket(socket.AF_UNIX) as abstract, socket.create_server(("127.0.0.1", 0)) as service:
        abstract.bind("\0rollout-fsm-hostile")
        abstract.listen()
        async with box("victim", limits=LIMITS) as victim, open_engine() as engine:
            await victim.run(["sh", "-c", "echo secret > file; sleep 1000 & echo $! > pid"])
            async with engine.rollout(Task(prompt="x"), harness=neighbour, model=ScriptedModel(["other"])) as other:
                await other.open()
                host = [folder(victim), folder(victim) / "workspace/file", tmp_path / "secret"]
                wanted = {
                    "end": end,
                    "secret": SECRET,
                    "other": neighbour.secret,
                    "files": [*map(str, host), "/sys", "/home", "/var", "/run/dbus", "/etc/shadow"],
                    "places": [
                        ("127.0.0.1", service.getsockname()[1]),
                        ("169.254.169.254", 80),
                        ("192.0.2.1", 80),
                        ("127.0.0.1", 3128),
                        ("fd00:ec2::254", 80),
                    ],
                    "abstract": ["\0rollout-fsm-hostile"],
                    "pids": [os.getpid(), os.getppid()],
                }
                yield World(engine, victim, wanted)


@pytest.mark.parametrize("end", ["ends well", "kills all"])
async def test_a_hostile_harness_gets_its_own_model_and_nothing_else(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(end, tmp_path, monkeypatch) as around:
        trace = await around.engine.run(Watched(prompt="go"), **around.settings)
        await around.unharmed()
    assert (trace.errors, trace.warnings, trace.reward, trace.num_turns) == ([], [], 1.0, 1)
    assert trace.state["got"] == {"its own model": "its own answer"}


@pytest.mark.parametrize("end", ["prints for ever", "waits for ever"])
async def test_a_hostile_harness_is_ended_whatever_it_left_behind(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(end, tmp_path, monkeypatch) as around, trio.open_nursery() as nursery:
        async with around.engine.rollout(Watched(prompt="go"), **around.settings) as rollout:
            await rollout.open()
            assert around.box is not None
            ringing = bell(around.box)
            nursery.start_soon(rollout.step)
            assert await ringing.line() == "up"
            await rollout.cancel()
            assert (rollout.state, rollout.trace.warnings) == ("aborted", [])
            await ringing.silence()
        await around.unharmed()


async def test_a_hostile_harness_that_fills_the_disk_loses_its_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world("fills the disk", tmp_path, monkeypatch) as around:
        trace = await around.engine.run(Watched(prompt="go"), **around.settings)
        await around.unharmed()
    assert trace.errors[0].type == "SandboxError"
    assert "beyond BoxLimits(workspace=33554432)" in trace.errors[0].message
    assert trace.warnings == []


async def test_a_harness_that_ignores_its_time_is_ended_when_that_is_out() -> None:
    script = "trap '' TERM INT HUP; (while :; do sleep 1000; done) & setsid sh -c \"trap '' TERM; while :; do :; done\""
    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="go"),
            harness=ProgramHarness(["sh", "-c", script, "{prompt}"]),
            model=ScriptedModel([]),
            runtime=partial(BubblewrapRuntime, grace=0.05),
            timeouts=RolloutTimeouts(agent=0.3),
        )
    assert [error.type for error in trace.errors] == ["HarnessError"]
    assert "agent timeout" in trace.errors[0].message
    assert trace.warnings == []

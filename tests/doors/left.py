"""What a dead process leaves: the folder of its run, and a box that stands. And the parties of the run that goes on."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen
from trio.testing import MockClock

from rollout_fsm import ChatHarness, ProgramResult, Request, Runtime, ScriptedModel, Task, open_engine, reward
from tests.doors.house import BOUNDS, House
from tests.doors.played import folder_of_a_run

MOMENTS = {"cut off": "model", "gone": "reward", "to be scored": "reward", "to be released": "stop"}
"""In which call the process dies, by the scene that it leaves."""


@define(eq=False)
class Yard:
    """Where boxes stand, whatever becomes of the processes that started them."""

    house: House = field(factory=House)
    """Of the process that runs now."""
    standing: set[str] = field(factory=set)
    look: Callable[[str], None] = field(default=lambda moment: None)
    """Told of the moments at which a process may die."""


YARD = Yard()
"""A lease names no object, so this is the one place where every process finds its boxes."""


class LeftBox(Runtime):
    """A box of the yard."""

    def __init__(self, name: str, *, adopted: bool = False) -> None:
        self._name = name
        self._adopted = adopted

    @property
    def name(self) -> Any:  # type: ignore[override]
        return YARD.house.look(f"runtime.name@{YARD.house.scene}" if self._adopted else "", self._name)

    @property
    def stopped(self) -> bool:
        return False

    @property
    def lease(self) -> Mapping[str, str]:
        return {"box": self._name}

    @classmethod
    def reclaim(cls, lease: Mapping[str, Any]) -> Any:
        going = YARD.house.knock(f"runtime.reclaim@{YARD.house.scene}")

        async def through() -> object:
            value = await going
            YARD.standing.discard(lease["box"])
            return value

        return through() if inspect.isawaitable(going) else going

    @classmethod
    def adopt(cls, name: str, lease: Mapping[str, Any]) -> Any:
        stands = YARD.house.scene != "gone" and lease["box"] in YARD.standing
        box = cls(name, adopted=True) if stands else None
        return YARD.house.knock(f"runtime.adopt@{YARD.house.scene}", box)

    async def start(self) -> None:
        YARD.standing.add(self._name)

    async def stop(self) -> None:
        YARD.look("stop")
        YARD.standing.discard(self._name)

    async def run(self, *_: object, **__: object) -> ProgramResult:
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        raise NotImplementedError

    async def write(self, path: str, data: bytes | str) -> None:
        raise NotImplementedError


@frozen(kw_only=True)
class LeftTask(Task):
    @reward
    def good(self) -> float:
        YARD.look("reward")
        return 1.0


LEFT, NEW = LeftTask(prompt="the one that was left"), LeftTask(prompt="a new one")


def agent() -> dict[str, Any]:
    def answer(request: Request) -> str:
        YARD.look("model")
        return "reply"

    return {"harness": ChatHarness(), "model": ScriptedModel(answer), "runtime": LeftBox, "timeouts": BOUNDS}


@frozen(kw_only=True)
class Image:
    """What a process left that died."""

    files: Mapping[str, bytes]
    box: str
    """Of the rollout of `LEFT`: its name, and the id of the trace."""


@cache
def left_by_a_process(moment: str) -> Image:
    """What a process left that ran `LEFT` and died in this call. Starts an event loop."""
    with folder_of_a_run() as folder:
        images: list[Image] = []

        def look(now: str) -> None:
            if now == moment:
                files = {path.name: path.read_bytes() for path in folder.iterdir()}
                (box,) = YARD.standing
                images.append(Image(files=files, box=box))

        async def whole() -> None:
            opening = open_engine(gateway=False, output_dir=folder)
            async with opening as engine, engine.run_all([LEFT], **agent()) as traces:
                async for _ in traces:
                    pass

        YARD.house, YARD.standing, YARD.look = House(), set(), look
        try:
            trio.run(whole, clock=MockClock(autojump_threshold=0))
        finally:
            YARD.look = lambda moment: None
    (image,) = images
    return image


def put_back(image: Image, folder: Path) -> None:
    """The folder and the box, as the process left them."""
    for name, content in image.files.items():
        (folder / name).write_bytes(content)
    YARD.standing = {image.box}

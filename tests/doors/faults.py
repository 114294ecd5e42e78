"""What can be wrong with a foreign call, as data: what is done, and what of it can be seen from outside, in the words
of L14a: an interrupt, a cancellation asked for, a deadline that passed, something raised, something returned.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn

import trio
from attrs import field, frozen

from rollout_fsm import InterceptionError
from tests.doors.house import BEYOND, GO_ON, PROPER, House

Call = Callable[[House], object]


@frozen
class Leaf:
    """One ordinary exception that came out."""

    type: str
    text: str
    typed: bool = False
    """Whether it is the engine's own kind already, which passes unchanged (L40)."""


@frozen(kw_only=True)
class Fault:
    """One way to go wrong."""

    name: str
    call: Call = field(default=lambda house: PROPER, repr=False)
    """What it does where nothing is awaited."""
    wait: Callable[[House], Awaitable[object]] | None = field(default=None, repr=False)
    """What it does where something is awaited; by default a checkpoint, then `call`."""
    where: tuple[str, ...] = ("awaited", "called")
    """The kinds of doors at which it can happen."""
    raised: tuple[Leaf, ...] = ()
    stray: bool = False
    """Whether only Cancelled came out, and nothing was cancelled."""
    interrupt: str = ""
    """The KeyboardInterrupt or SystemExit that came out."""
    late: Literal["", "cut", "swallowed", "beyond"] = ""
    """It goes on until it is interrupted at its bound, and then ends with that; or it returns as if nothing had been;
    or it ignores that for some seconds."""
    asks: str = ""
    """What it asks of the rollout, or does to its caller."""
    returned: str = ""
    """What it returns that it should not."""
    is_async: bool = True

    def awaited(self, house: House) -> Awaitable[object]:
        async def at_a_checkpoint() -> object:
            await trio.lowlevel.checkpoint()
            return self.call(house)

        return at_a_checkpoint() if self.wait is None else self.wait(house)

    def called(self, house: House) -> object:
        return self.call(house)

    @property
    def returns(self) -> bool:
        """Whether it returned, however late and whatever."""
        return not (self.raised or self.stray or self.interrupt or self.late == "cut")

    @property
    def comes_as(self) -> str:
        """The type of what is raised, as it comes."""
        if "group" in self.name:
            return "BaseExceptionGroup"
        return self.interrupt or ("Cancelled" if self.stray else "".join(leaf.type for leaf in self.raised))


# ---- what comes out


class OddError(BaseException):
    """Neither an exception nor an interrupt."""


class UnprintableError(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raising(make: Callable[[House], BaseException]) -> Call:
    def call(house: House) -> NoReturn:
        raise make(house)

    return call


def stray(house: House) -> trio.Cancelled:
    """A Cancelled that was kept from an earlier cancellation."""
    return house.kept.pop()


def raises(name: str, type_: str, text: str, make: Callable[[], BaseException], *, typed: bool = False) -> Fault:
    return Fault(name=f"raises {name}", call=raising(lambda house: make()), raised=(Leaf(type_, text, typed),))


def interrupts(kind: type[BaseException]) -> Fault:
    return Fault(name=f"raises {kind.__name__}", call=raising(lambda house: kind("now")), interrupt=kind.__name__)


async def own_nursery_fails(house: House) -> None:
    """A child raises, its sibling is cancelled for it: an exception group comes out."""

    async def child() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a child's")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(child)


class ForeignWish:
    """What a framework other than trio asks its event loop for."""

    def __await__(self) -> Any:
        yield


async def awaits_asyncio(house: House) -> None:
    await ForeignWish()


RAISING = (
    raises("ValueError", "ValueError", "wrong", lambda: ValueError("wrong")),
    raises("a typed error", "InterceptionError", "typed", lambda: InterceptionError("typed"), typed=True),
    raises("its own TimeoutError", "TimeoutError", "of its own", lambda: TimeoutError("of its own")),
    raises("its own TooSlowError", "TooSlowError", "", trio.TooSlowError),
    raises("what cannot be shown", "UnprintableError", "cannot be shown", UnprintableError),
    raises("a bare BaseException", "OddError", "odd", lambda: OddError("odd")),
    raises("GeneratorExit", "GeneratorExit", "left", lambda: GeneratorExit("left")),
    interrupts(KeyboardInterrupt),
    interrupts(SystemExit),
    Fault(name="raises a stray Cancelled", call=raising(stray), stray=True),
    Fault(
        name="raises a group of strays",
        call=raising(lambda house: BaseExceptionGroup("strays", [stray(house), stray(house)])),
        stray=True,
    ),
    Fault(
        name="raises a group",
        call=raising(
            lambda house: BaseExceptionGroup(
                "g", [ValueError("one"), stray(house), ExceptionGroup("inner", [InterceptionError("two")])]
            )
        ),
        raised=(Leaf("ValueError", "one"), Leaf("InterceptionError", "two", typed=True)),
    ),
    Fault(
        name="raises an interrupt in a group",
        call=raising(lambda house: BaseExceptionGroup("g", [ValueError("beside"), KeyboardInterrupt("now")])),
        interrupt="KeyboardInterrupt",
        raised=(Leaf("ValueError", "beside"),),
    ),
    Fault(
        name="fails in a nursery of its own",
        wait=own_nursery_fails,
        where=("awaited",),
        raised=(Leaf("ValueError", "a child's"),),
    ),
    Fault(
        name="awaits what is not trio's", wait=awaits_asyncio, where=("awaited",), raised=(Leaf("TypeError", "trio"),)
    ),
    Fault(
        name="is not async", where=("awaited",), is_async=False, call=lambda house: None,
        raised=(Leaf("TypeError", "await"),),
    ),
)  # fmt: skip


# ---- time


async def hangs(house: House) -> None:
    await trio.sleep_forever()


async def swallows(house: House) -> object:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return PROPER


async def raises_instead(house: House) -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ValueError("instead") from None


async def ignores(house: House) -> object:
    with trio.CancelScope(shield=True):
        await trio.sleep(house.seconds + BEYOND)
    return PROPER


LATE = (
    Fault(name="hangs", wait=hangs, where=("awaited",), late="cut"),
    Fault(name="swallows its interruption", wait=swallows, where=("awaited",), late="swallowed"),
    Fault(
        name="raises instead of its interruption", wait=raises_instead, where=("awaited",), late="cut",
        raised=(Leaf("ValueError", "instead"),),
    ),
    Fault(name="ignores its bound", wait=ignores, where=("awaited",), late="beyond"),
)  # fmt: skip


# ---- what comes back


class Awaitable_:  # noqa: N801
    """Something to await that nobody awaits; a coroutine would complain."""

    def __await__(self) -> Any:
        raise AssertionError("nobody awaits it")


class Hostile:
    """Whatever is asked of it, it raises."""

    def _no(self, *_: object) -> NoReturn:
        raise ValueError("hostile")

    __bool__ = __len__ = __iter__ = __eq__ = __hash__ = __repr__ = __str__ = __float__ = _no


MADE: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "text": lambda: "text",
    "object": object,
    "True": lambda: True,
    "False": lambda: False,
    "an awaitable": Awaitable_,
    "something hostile": Hostile,
}


def returning(what: str) -> Fault:
    return Fault(name=f"returns {what}", call=lambda house: MADE[what](), returned=what)


RETURNING = tuple(map(returning, MADE))


# ---- what it asks of its own rollout


class OwnersError(Exception):
    """What is reported by `rollout.fail`."""


async def ask(house: House) -> object:
    await house.rollout.cancel()
    return GO_ON


async def closes(house: House) -> object:
    await house.rollout.close()
    return GO_ON


async def steps(house: House) -> object:
    await house.rollout.step("and")
    return GO_ON


def stops(house: House) -> object:
    house.rollout.stop("asked")
    return GO_ON


def fails(house: House) -> object:
    house.rollout.fail(OwnersError("reported"))
    return GO_ON


def cancels_its_caller(house: House) -> object:
    house.scope.cancel()
    return GO_ON


async def cancels_itself(house: House) -> object:
    house.scope.cancel()
    await trio.lowlevel.checkpoint()
    return GO_ON


async def cancels_its_nursery(house: House) -> object:
    """Whoever started the task that it runs in, it cancels their nursery."""
    nursery = trio.lowlevel.current_task().parent_nursery
    assert nursery is not None
    nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()
    return GO_ON


BUSY = Leaf("RolloutBusyError", "in progress")
ASKING = (
    Fault(name="asks for rollout.stop", call=stops, asks="stop"),
    Fault(name="asks for rollout.fail", call=fails, asks="fail", raised=(BUSY,)),
    Fault(name="asks for rollout.step", wait=steps, where=("awaited",), asks="step", raised=(BUSY,)),
    Fault(name="awaits rollout.cancel", wait=ask, where=("awaited",), asks="cancel"),
    Fault(name="awaits rollout.close", wait=closes, where=("awaited",), asks="close", late="cut"),
    Fault(name="cancels its caller", call=cancels_its_caller, wait=cancels_itself, asks="caller"),
    Fault(name="cancels the nursery it is in", wait=cancels_its_nursery, where=("awaited",), asks="nursery"),
)  # fmt: skip

FAULTS = (*RAISING, *LATE, *RETURNING, *ASKING)

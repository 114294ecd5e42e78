"""Where a coroutine function lives: on trio, or on the asyncio loop that is the engine's host.

What is defined in this package lives on trio. All else is the embedder's and lives on asyncio, unless the function, or
the class whose method it is, says `runs_on = "trio"`. It is asked of each function, not of the object: what an
embedder's class inherits from a class of the package stays on trio.
"""

from functools import partial
from types import FunctionType, MethodType
from typing import Literal, TypeAlias, cast

PACKAGE = __name__.partition(".")[0]

Home: TypeAlias = Literal["trio", "asyncio"]


def home(function: object, owner: object = None) -> Home:
    """Where this function is to be called. `owner`: whose method it is, where the function itself does not know.

    Looks through partial objects, bound methods and decorators that used `functools.wraps`. Raises `TypeError` where
    `runs_on` is text that names neither home.
    """
    while True:
        if (said := _said(function)) is not None:
            return said
        if isinstance(function, MethodType):
            owner = function.__self__
            function = function.__func__
        elif isinstance(function, partial):
            function = function.func
        elif (inner := getattr(function, "__wrapped__", None)) is not None:
            function = inner
        elif not isinstance(function, type) and (called := _call_of(type(function))) is not None:
            owner, function = function, called
        else:
            break
    if owner is not None and (said := _said(owner if isinstance(owner, type) else type(owner))) is not None:
        return said
    module = getattr(function, "__module__", None) or ""
    return "trio" if module.partition(".")[0] == PACKAGE else "asyncio"


def _call_of(kind: type) -> FunctionType | None:
    """What is run when an object of this class is called, where that is written in Python."""
    called = getattr(kind, "__call__", None)  # noqa: B004  (the function is wanted, not whether there is one)
    return called if isinstance(called, FunctionType) else None


def _said(thing: object) -> Home | None:
    """What a function or a class says itself."""
    said = getattr(thing, "runs_on", None)
    if not isinstance(said, str):
        return None
    if said not in ("trio", "asyncio"):
        name = getattr(thing, "__qualname__", repr(thing))
        raise TypeError(f"runs_on of {name} is {said!r}; it names the event loop: 'trio' or 'asyncio'")
    return cast("Home", said)

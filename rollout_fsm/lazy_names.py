"""Packages whose names are found in their modules when they are first asked for: a program pays for what it uses.

It is for names that some programs need and most do not. What a package is asked for by everybody it imports itself.

Threads that ask at once are served one after another: Python's own locks, one for each module, would find them waiting
for each other wherever a package imports its modules, and give one of them half a module. So no module of this package
asks for such a name while it is imported: it would wait for the others, who may wait for it.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import RLock

_ONE_AT_A_TIME = RLock()


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's own `__getattr__` and `__dir__`. `homes`: each name with the module that has it, imported by the
    first who asks for the name."""

    def __getattr__(name: str) -> object:  # noqa: N807  (the module's; it says so in a traceback)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _ONE_AT_A_TIME:
            value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *homes})

    return __getattr__, __dir__

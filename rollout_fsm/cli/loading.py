"""Objects by name: `module:Class`, as flags and configuration files name them.

The current folder is searched too, as `python -m` does. Whatever is wrong with the name, the module or what is in it,
is a `UsageError` of one line that says where.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.machine.exact import suggestion

__all__ = ["current_folder_importable", "is_reference", "load"]


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Within the block, modules of the current folder can be imported."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        raise UsageError("the current folder is gone; change to one that exists") from None
    there = folder in sys.path or "" in sys.path
    if not there:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if not there and folder in sys.path:
            sys.path.remove(folder)


def is_reference(text: str) -> bool:
    """Whether the text names an object in a module."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def load(reference: str, what: str) -> object:
    """The object that `module:Name` names. `what` is what it is wanted for, such as `--task`."""
    if not is_reference(reference):
        raise UsageError(f"{what}: {reference!r} names nothing; write module:Class, as in my_tasks:Sum")
    module_name, _, name = reference.partition(":")
    try:
        found: object = import_module(module_name)
    except Exception as error:
        raise UsageError(f"{what}: {_unimportable(module_name, error)}") from error
    except SystemExit as error:
        raise UsageError(f"{what}: the module {module_name} ends the program when it is imported") from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = suggestion(part, [known for known in dir(found) if not known.startswith("_")])
            near = near if "did you mean" in near else ""
            raise UsageError(f"{what}: the module {module_name} has no {name!r}{near}")
        found = getattr(found, part)
    return found


def _unimportable(module: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}, neither installed nor in {Path.cwd()}"
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames[1:] else ""
    return f"the module {module} cannot be imported: {said}{where if not isinstance(error, SyntaxError) else ''}"

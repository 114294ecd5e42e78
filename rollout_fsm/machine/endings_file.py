"""The table of endings, read from `states/endings.toml` exactly: its own words only, and every fault at once.

What is read is well-formed: every state, trigger, condition and type of error in it exists. Whether it also speaks of
every rollout, and has no row in vain, is for endings_proof.py.
"""

import tomllib
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NewType

from attrs import asdict, frozen

from rollout_fsm.machine.declaration import (
    ENDINGS_FILE,
    Declaration,
    DeclarationError,
    load_machine,
    shipped,
    states_dir,
)
from rollout_fsm.machine.endings import (
    A_STOP,
    ANOTHER,
    BOUNDARIES,
    BY_ERROR,
    CAUSES,
    ENGINE_STOPS,
    NONE,
    OVERLONG,
    DeclaredCause,
    EndingRow,
    Endings,
    Status,
    row_faults,
)
from rollout_fsm.machine.exact import allow, array_of, make_converter, structure, table_of

_Condition = NewType("_Condition", str)
_ErrorType = NewType("_ErrorType", str)

CONDITION_WORDS = (*ENGINE_STOPS, A_STOP, ANOTHER, NONE)
"""What a row may say under `conditions`."""

ERROR_WORDS = (*BOUNDARIES, OVERLONG, ANOTHER)
"""What a row may say under `errors`."""

STATUS_WORDS: tuple[Status, ...] = ("transient", "permanent")


@frozen(kw_only=True)
class _RowInFile:
    name: str
    end: str
    conditions: tuple[_Condition, ...] | None = None
    sources: tuple[str, ...] | None = None
    triggers: tuple[str, ...] | None = None
    errors: tuple[_ErrorType, ...] | None = None
    status: Status | None = None
    cause: DeclaredCause
    counts: bool
    retryable: bool
    reason: str


@frozen(kw_only=True)
class _EndingsFile:
    ending: tuple[_RowInFile, ...]


def load_endings(folder: Traversable | Path | None = None, declaration: Declaration | None = None) -> Endings:
    """Read `endings.toml` of the folder, for a declared machine; by default the shipped ones.

    Raises DeclarationError with all faults at once.
    """
    folder = states_dir() if folder is None else folder
    declaration = load_machine(folder) if declaration is None else declaration
    path = folder / ENDINGS_FILE
    if not path.is_file():
        raise DeclarationError([f"{path}: no such file"])
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeclarationError([f"{ENDINGS_FILE}: {error}"]) from None
    read = _structured(data)
    if isinstance(read, list):
        raise DeclarationError(f"{ENDINGS_FILE}: {fault}" for fault in read)
    rows, faults = [], []
    for index, given in enumerate(read.ending):
        try:
            row = EndingRow(**asdict(given, recurse=False))
        except (TypeError, ValueError) as refused:
            faults.append(f"{ENDINGS_FILE}: ending[{index}]: {refused}")
            continue
        rows.append(row)
        faults += [f"{ENDINGS_FILE}: ending[{index}].{fault}" for fault in row_faults(row, declaration)]
    if faults:
        raise DeclarationError(faults)
    return Endings(rows=tuple(rows), declaration=declaration)


@cache
def endings() -> Endings:
    """The shipped table, loaded once for the process, at the first use."""
    return load_endings(declaration=shipped())


def _structured(data: object) -> _EndingsFile | list[str]:
    converter = make_converter()
    for type_, noun, words in (
        (_Condition, "stop condition", CONDITION_WORDS),
        (_ErrorType, "type of error", ERROR_WORDS),
        (Status, "status", STATUS_WORDS),
        (DeclaredCause, "cause", (*CAUSES, BY_ERROR)),
    ):
        allow(converter, type_, noun, words)
    for word in (str, _Condition, _ErrorType):
        array_of(converter, word, "names")
    table_of(converter, _RowInFile)
    array_of(converter, _RowInFile)
    return structure(converter, data, _EndingsFile)

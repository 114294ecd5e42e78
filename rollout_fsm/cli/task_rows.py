"""The tasks of a run: a class and a JSONL file of its rows. A wrong file is refused before anything starts, with the
line."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import attrs

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.loading import load
from rollout_fsm.exact_json import FormatError
from rollout_fsm.messages import JSON
from rollout_fsm.rows import structure_task
from rollout_fsm.task import Task

__all__ = ["read_tasks", "selected", "task_class"]


def task_class(reference: str | None) -> type[Task]:
    """The class of the tasks; `Task` itself, which scores nothing, where none is named."""
    if reference is None:
        return Task
    found = load(reference, "--task")
    if not isinstance(found, type) or not issubclass(found, Task):
        raise UsageError(
            f"--task: {reference} is {_article(found)}, not a class of tasks; derive it from rollout_fsm.Task"
        )
    return found


def read_tasks(path: Path, cls: type[Task]) -> list[Task]:
    """A task for each line of the file that is not blank. A row that says no `idx` has its place, from 0.

    Raises `UsageError` for the first line that is no row of this class, and says how many others are none either.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    tasks: list[Task] = []
    first = ""
    wrong = 0
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        try:
            tasks.append(_task(cls, text, place=len(tasks) + wrong))
        except ValueError as error:
            wrong += 1
            first = first or f"{path}: line {number}{error}"
    if wrong:
        raise UsageError(first if wrong == 1 else f"{first} ({_more(wrong - 1)})")
    if not tasks:
        raise UsageError(f"{path}: there are no tasks in it; write one JSON object on each line")
    return tasks


def selected(tasks: Sequence[Task], *, num_tasks: int | None, shuffle: bool, seed: int) -> list[Task]:
    """The first `num_tasks` of the tasks, shuffled before if asked for; the same ones for the same seed."""
    chosen = list(tasks)
    if shuffle:
        random.Random(seed).shuffle(chosen)
    chosen = chosen[:num_tasks]
    for task in chosen:
        _identify(task)
    return chosen


def _identify(task: Task) -> None:
    """Refuse a task whose own code cannot say which one it is, before anything is started."""
    try:
        _ = task.key, task.hash
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"--task: key or hash of {type(task).__name__} number {task.idx} failed: {said}") from error


def _task(cls: type[Task], line: bytes, *, place: int) -> Task:
    """The task of a line. Raises `ValueError` with what is to be read after the line's number."""
    row = _row(line)
    if "idx" in attrs.fields_dict(cls) and "idx" not in row:
        row["idx"] = place
    try:
        return structure_task(cls, row)
    except FormatError as error:
        raise ValueError(f": {'; '.join(error.faults)}") from None


def _row(line: bytes) -> dict[str, JSON]:
    try:
        row = json.loads(line.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ValueError(f" is not UTF-8: its byte {error.start + 1} is {line[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f" is not JSON: {error.msg}, at column {error.colno}") from None
    except RecursionError:
        raise ValueError(" is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f" is {_KINDS.get(type(row), 'null')}, not a JSON object with the task's columns")
    return row


def _refuse(constant: str) -> object:
    raise ValueError(f" is not JSON: it has no {constant}")


_KINDS = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "an array"}


def _more(count: int) -> str:
    return f"and {count} more line{'s are' if count > 1 else ' is'} wrong"


def _article(found: object) -> str:
    kind = "class" if isinstance(found, type) else type(found).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"

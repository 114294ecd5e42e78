"""What a program is started with, and what is said when it cannot be started.

The environment is an allow-list: nothing of the engine's own environment reaches a program unless it is named here,
so that no key of the engine's does.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_fsm.errors import SandboxError

MARKER = "ROLLOUT_FSM_BOX_"
"""Prefix of the variables that mark a box's programs. Those of an engine that itself runs in a box are handed on."""
TEMPORARY = ".tmp"
"""The folder in the workspace that TMPDIR names."""


def command(argv: Sequence[str]) -> list[str]:
    """The argument vector, checked: `TypeError` for a command line in one string, `ValueError` for an empty one."""
    if isinstance(argv, str | bytes):
        raise TypeError(f"argv is a list of strings, not a command line: {argv!r}; for a shell pass ['sh', '-c', …]")
    if not argv:
        raise ValueError("argv is empty: its first item names the program")
    return list(argv)


def environment(workspace: Path, added: Mapping[str, str] | None) -> dict[str, str]:
    """A program's variables: PATH, HOME, LANG, TMPDIR, then what is added."""
    allowed = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(workspace),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TMPDIR": str(workspace / TEMPORARY),
    }
    outer = {name: value for name, value in os.environ.items() if name.startswith(MARKER)}
    return {**allowed, **(added or {}), **outer}


def explain(error: OSError, argv: Sequence[str], env: Mapping[str, str], workspace: Path, runtime: str) -> Exception:
    """The exception that says why a program did not start. Looks at the file system, so it blocks."""
    program = argv[0]
    if error.filename == str(workspace) or not workspace.is_dir():
        return SandboxError(
            f"runtime {runtime} cannot run {program!r}: its workspace {workspace} is gone or closed ({error})"
        )
    places = _places(program, env, workspace)
    present = next((place for place in places if place.is_file()), None)
    return unrunnable(error.errno or 0, program, env, runtime, place=places[0], present=present)


def unrunnable(
    number: int, program: str, env: Mapping[str, str], runtime: str, *, place: Path, present: Path | None
) -> Exception:
    """The exception for a program that could not be executed: `number` is the errno, `place` where it was looked for
    first, `present` the first file that was found under its name.
    """
    if number == errno.ENOENT and present:
        return FileNotFoundError(
            number, f"the program {present} is there, but the interpreter that it asks for is not", program
        )
    if number in (errno.ENOENT, errno.ENOTDIR):
        where = f"its PATH {env.get('PATH', '')!r}" if os.sep not in program else str(place)
        return FileNotFoundError(errno.ENOENT, f"no such program in runtime {runtime}, looked in {where}", program)
    if number == errno.EACCES:
        what = "is not executable" if present else "is not a file that can be run"
        return PermissionError(
            number, f"{present or place} in runtime {runtime} {what}; chmod +x it, or name its interpreter", program
        )
    return SandboxError(f"runtime {runtime} could not start {program!r}: {os.strerror(number)} (errno {number})")


def _places(program: str, env: Mapping[str, str], workspace: Path) -> list[Path]:
    if os.sep in program:
        return [workspace / program]
    return [workspace / folder / program for folder in env.get("PATH", os.defpath).split(os.pathsep)]

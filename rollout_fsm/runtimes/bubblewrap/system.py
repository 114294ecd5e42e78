"""What of the host's file system programs of a box see, read-only: chosen folders, never all of it.

The system's programs and libraries, what these read in /etc, this interpreter, and what the user adds. Nothing of a
home, of /run, of /var, of /opt or of /sys, unless it is added.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.runtimes.bubblewrap import etc

TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders that are links into /usr on most systems, and folders of their own on others."""
OF_PYTHON = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share", "ssl")
"""What makes up an installation of Python, whose folder may be anybody's home otherwise."""


@frozen
class Mount:
    """A file or folder of the host, and where programs see it."""

    source: Path
    place: Path
    writable: bool = False


def links() -> Iterator[tuple[str, Path]]:
    """The links at the top that lead into /usr: target, and place."""
    for name in TOP:
        path = Path("/") / name
        if path.is_symlink():
            yield os.readlink(path), path


def system() -> Iterator[Mount]:
    """What every program needs."""
    yield _as_it_is(Path("/usr"))
    for name in TOP:
        path = Path("/") / name
        if path.is_dir() and not path.is_symlink():
            yield _as_it_is(path)
    for name in etc.shown():
        yield _as_it_is(etc.HOSTS / name)


def python() -> Iterator[Mount]:
    """This interpreter and the packages that it has."""
    for prefix in sorted(_prefixes()):
        for name in OF_PYTHON:
            path = prefix / name
            if path.exists():
                yield _as_it_is(path)


def interpreter() -> str:
    """The interpreter itself, without the environment that it may be used through."""
    return os.path.realpath(sys.executable)


def called() -> Path | None:
    """The name that this interpreter was called by, where that is outside of what is shown."""
    name = Path(os.path.abspath(sys.executable))
    shown = (Path("/usr"), *(Path("/") / top for top in TOP), *_prefixes())
    return None if any(name.is_relative_to(folder) for folder in shown) else name


def added(paths: Iterable[str], boxes: Path) -> Iterator[Mount]:
    """What the user adds. Raises `SandboxError` for what is not there, and for a folder in which all boxes are."""
    for name in paths:
        path = Path(name)
        if not path.is_absolute() or not path.exists():
            raise SandboxError(f"read_only has {name!r}, which is no absolute path of anything on this machine")
        if boxes.is_relative_to(path.resolve()):
            raise SandboxError(
                f"read_only has {name!r}, in which the folders of all boxes are ({boxes}); add what is needed of it, "
                f"or set TMPDIR to another folder"
            )
        yield _as_it_is(path)


def _as_it_is(path: Path) -> Mount:
    return Mount(path, path)


def _prefixes() -> set[Path]:
    """The folders in which this interpreter and its environment are installed, but for /usr, which is shown anyway."""
    prefixes = {*map(os.path.abspath, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))}
    prefixes |= {os.path.realpath(prefix) for prefix in prefixes} | {os.path.dirname(os.path.dirname(interpreter()))}
    return {path for path in map(Path, prefixes) if path != path.parent and not path.is_relative_to("/usr")}

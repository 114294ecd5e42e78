"""How a folder goes away with whatever programs left in it: folders without write permission, chains of folders
deeper than a path can be long, files that come back, the folder itself moved elsewhere.

Blocking; callers run it in a thread. It follows no symbolic link, recurses nowhere, and never touches what is outside
the folder.
"""

import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rollout_fsm.runtimes.table import LINUX

ATTEMPTS = 3
"""How often an emptied folder that is found filled again is emptied once more."""

GONE = " (deleted)"
"""How the system marks the path of a folder that was removed."""


def remove(folder: Path) -> str | None:
    """Remove a folder and all that is in it; a folder that is gone already is fine.

    Returns None, or the first thing that could not be removed and why. A symbolic link in its place is unlinked.
    """
    troubles: list[OSError] = []
    for _ in range(ATTEMPTS):
        troubles.clear()
        try:
            if not _is_folder(folder):
                folder.unlink()
                return None
            os.chmod(folder, stat.S_IRWXU)
            _empty(folder, troubles)
            folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            troubles.append(error)
        else:
            return None
    return str(troubles[0])


def remove_moved(descriptor: int, folder: Path) -> str | None:
    """Remove the folder that a descriptor is of, wherever it is now; `folder` is where it was.

    Returns None, or what is left and why. Where the system cannot say where a folder is, nothing is done.
    """
    if not LINUX or os.fstat(descriptor).st_nlink == 0:
        return None
    place = os.readlink(f"/proc/self/fd/{descriptor}")
    if place.endswith(GONE):
        return None
    try:
        found = os.path.samestat(os.lstat(place), os.fstat(descriptor))
    except OSError as error:
        return f"it was moved from {folder} to {place} ({error})"
    return remove(Path(place)) if found else f"it was moved from {folder} to somewhere else"


def _empty(folder: Path, troubles: list[OSError]) -> None:
    """Remove what is in the folder. Folders in its folders are moved up into it, so that no path grows long."""
    numbers = count()
    work = os.listdir(folder)
    while work:
        path = folder / work.pop()
        try:
            if not _is_folder(path):
                path.unlink()
                continue
            os.chmod(path, stat.S_IRWXU)
            for name in os.listdir(path):
                moved = _take_out(path / name, folder, numbers, troubles)
                work.extend(moved)
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles.append(error)


def _take_out(inner: Path, folder: Path, numbers: Iterator[int], troubles: list[OSError]) -> list[str]:
    """Remove a file, or move a folder up and return its new name."""
    try:
        if not _is_folder(inner):
            inner.unlink()
            return []
        os.chmod(inner, stat.S_IRWXU)  # a folder without write permission cannot be moved
        name = next(name for name in map(".gone-{}".format, numbers) if not os.path.lexists(folder / name))
        inner.rename(folder / name)
    except FileNotFoundError:
        return []
    except OSError as error:
        troubles.append(error)
        return []
    return [name]


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)

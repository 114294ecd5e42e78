"""Scenarios in files, played one after the other, for the command line."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rollout_fsm.simulation.play import simulate

USAGE = 2


def simulate_files(
    paths: Sequence[str | Path], *, many: bool, write: Callable[[str], object], complain: Callable[[str], object]
) -> int:
    """Play scenario or case files, in order; `write` gets a line of JSON for each outcome. Returns an exit code.

    Without `many` there must be one path. With it, one that cannot be played is said to `complain`, and has a line
    `{"file": …, "error": …}`, so that there is a line for each path. 0: all were played; 2: one could not be.
    """
    if not many and len(paths) != 1:
        complain(f"simulate plays one scenario, not {len(paths)}; to play several, one outcome a line, add --many")
        return USAGE
    code = 0
    for path in paths:
        try:
            line = json.dumps(simulate(path).to_json(), allow_nan=False)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            complain(f"{path}: {said}")
            code, line = USAGE, json.dumps({"file": str(path), "error": said})
            if not many:
                break
        write(line)
    return code

"""The interpreter that `--peer` names: whether it is one, and has what the benchmarks are compared with."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.sampling import NotStartedError, SampleError, figures, run
from tests.benchmarks.surroundings import PEERS, VERIFIERS
from tests.benchmarks.works import HERE


def versions_of(python: str) -> Mapping[str, str]:
    """The versions of Python and of the peer's distributions. Raises `SampleError`."""
    if shutil.which(python) is None and Path(python).is_dir():
        raise SampleError(f"{python} is a folder")
    try:
        found = figures(python, (str(HERE / "surroundings.py"), *PEERS), PEERS)
    except NotStartedError:
        raise
    except SampleError as error:
        if _is_python(python):
            raise
        raise SampleError(f"{python} is no Python interpreter") from error
    for name, version in found.items():
        if version is None:
            raise SampleError(f"{python} has no {name}; {python} -m pip install {VERIFIERS}")
    return found


def _is_python(python: str) -> bool:
    try:
        return run(python, ("-c", "print(6 * 7)")).stdout == "42\n"
    except SampleError:
        return False

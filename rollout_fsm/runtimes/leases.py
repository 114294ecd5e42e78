"""What another process needs to know of a box whose own process has died: where its folder is, and what its programs
bear in their environment.

Both are chosen before anything is made, and both contain a token that nobody else picks, so that whatever is found by
them is the box's. The invariant: a lease that was made on another machine, or that somebody made up, leads to nothing.
"""

import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from attrs import field, frozen, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.exact_json import FormatError, exact_converter, structured
from rollout_fsm.messages import JSON
from rollout_fsm.runtimes import launch

LONGEST_NAME = 40
"""Characters of a box's name that are in the name of its folder: sockets are made in it, whose paths are short."""
IN_NAME = 16
"""How many of the token's characters are."""


@frozen(kw_only=True)
class FolderLease:
    """The lease of a box that is a folder of this machine, and processes."""

    KIND: ClassVar[str] = "runtime"
    """What it is the lease of, for messages."""

    workspace: str
    """The folder."""
    token: str = field(validator=validators.matches_re("[0-9a-f]{32}"))
    machine: str
    """Which machine: what is at a path of another one is not looked at."""
    boot: str
    """Which start of it: after another one none of the processes is left."""
    cap: int = field(validator=validators.ge(0))
    grace: float = field(validator=validators.ge(0))
    read_cap: int = field(validator=validators.ge(0))

    def __attrs_post_init__(self) -> None:
        path = Path(self.workspace)
        if not path.is_absolute() or not path.name.endswith(f"-{self.token[:IN_NAME]}"):
            raise ValueError(f"workspace: {self.workspace!r} is no folder of a box with the token {self.token}")

    @property
    def marker(self) -> str:
        """The variable in the environment of the box's programs."""
        return launch.MARKER + self.token

    @property
    def here(self) -> bool:
        """Whether it was made on this machine."""
        return self.machine == machine()

    @property
    def same_boot(self) -> bool:
        """Whether it was made since this machine was started."""
        return self.here and self.boot == boot()

    def to_json(self) -> dict[str, JSON]:
        """The lease as JSON."""
        written: dict[str, JSON] = _CONVERTER.unstructure(self)
        return written

    def require_here(self) -> None:
        """Raises `SandboxError` for a box of another machine, which cannot be removed from here."""
        if not self.here:
            raise SandboxError(
                f"the box in {self.workspace} is on the machine {self.machine!r} and cannot be removed from here: "
                f"end its processes and remove the folder there"
            )

    @classmethod
    def new(cls, name: str, **settings: Any) -> Self:
        """Of a box that is to be made here, with the rest of its fields. Raises `OSError` where there is no folder for
        temporary files.
        """
        token = secrets.token_hex(16)
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_NAME]
        workspace = Path(tempfile.gettempdir()).resolve() / f"{prefix}-{token[:IN_NAME]}"
        return cls(workspace=str(workspace), token=token, machine=machine(), boot=boot(), **settings)

    @classmethod
    def from_json(cls, lease: Mapping[str, JSON]) -> Self:
        """The lease that JSON says. Raises `SandboxError` for one that is none."""
        try:
            return structured(_CONVERTER, dict(lease), cls, f"this is no lease of a {cls.KIND}")
        except FormatError as error:
            raise SandboxError(str(error)) from None


@frozen(kw_only=True)
class LocalLease(FolderLease):
    """The lease of a `LocalRuntime`."""

    KIND = "LocalRuntime"


@cache
def machine() -> str:
    """What tells this machine from others: its name, and its id where it has one."""
    return f"{os.uname().nodename} {_read('/etc/machine-id')}".rstrip()


@cache
def boot() -> str:
    """What tells this start of the machine, or of the container, from others; empty where the system does not say."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return f"{_read('/proc/sys/kernel/random/boot_id')} {processes}".strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


_CONVERTER = exact_converter(forbid_extra_keys=True)

"""What another process needs to find a container whose own process has died: the label that it bears, and where its
engine is."""

import os
import re
import secrets
from collections.abc import Mapping

from attrs import asdict, field, frozen, validators

from rollout_fsm.errors import SandboxError
from rollout_fsm.exact_json import FormatError, exact_converter, structured
from rollout_fsm.messages import JSON
from rollout_fsm.runtimes.leases import machine

LABEL = "rollout-fsm.box"
"""The label whose value is a container's token."""
LONGEST_NAME = 40
"""Characters of a box's name that are in the name of its container."""
ADDRESSES = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINER_CONNECTION")
"""Variables by which a command line is told of another engine than this machine's."""


@frozen(kw_only=True)
class DockerLease:
    """The lease of a `DockerRuntime`."""

    token: str = field(validator=validators.matches_re("[0-9a-f]{32}"))
    container: str = field(validator=validators.matches_re("[A-Za-z0-9][A-Za-z0-9_.-]+"))
    engine: str
    """The program that speaks to the engine, as it was named."""
    address: dict[str, str]
    """What of `ADDRESSES` was set, and so told which engine."""
    machine: str
    workspace: str
    grace: float = field(validator=validators.ge(0))
    cap: int = field(validator=validators.ge(0))
    read_cap: int = field(validator=validators.ge(0))

    @property
    def filter(self) -> str:
        """What finds the container, and no other."""
        return f"label={LABEL}={self.token}"

    @property
    def here(self) -> bool:
        """Whether its engine is spoken to from here: this machine's own, or one that has an address."""
        return bool(self.address) or self.machine == machine()

    def to_json(self) -> dict[str, JSON]:
        """The lease as JSON."""
        return asdict(self)

    @classmethod
    def new(cls, name: str, *, engine: str, workspace: str, grace: float, cap: int, read_cap: int) -> "DockerLease":
        """Of a container that is to be made."""
        token = secrets.token_hex(16)
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_NAME].lstrip("-_") or "box"
        return cls(
            token=token,
            container=f"{prefix}-{token[:16]}",
            engine=engine,
            address={name: os.environ[name] for name in ADDRESSES if name in os.environ},
            machine=machine(),
            workspace=workspace,
            grace=grace,
            cap=cap,
            read_cap=read_cap,
        )

    @classmethod
    def from_json(cls, lease: Mapping[str, JSON]) -> "DockerLease":
        """The lease that JSON says. Raises `SandboxError` for one that is none."""
        try:
            return structured(_CONVERTER, dict(lease), cls, "this is no lease of a DockerRuntime")
        except FormatError as error:
            raise SandboxError(str(error)) from None


_CONVERTER = exact_converter(forbid_extra_keys=True)

"""The runtime of a run, from what the settings call it and say of it. Nothing is started here."""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import cast

from attrs import frozen

from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.loading import is_reference, load
from rollout_fsm.cli.parts import kind_of
from rollout_fsm.cli.settings import BoxSettings, NetworkSettings, flag, said
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import Runtime, RuntimeFactory
from rollout_fsm.runtimes import LocalRuntime
from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
from rollout_fsm.runtimes.docker import DockerRuntime

__all__ = ["RUNTIMES", "make_runtime"]

Make = Callable[[NetworkPolicy | None, BoxSettings], RuntimeFactory]

NOTHING = NetworkPolicy(allow=())
"""What programs in a box may reach unless it is said."""

_LIMITS = frozenset({"memory", "processes", "cpu_time", "file_size", "workspace"})


def _local(policy: NetworkPolicy | None, box: BoxSettings) -> RuntimeFactory:
    return LocalRuntime


def _bubblewrap(policy: NetworkPolicy | None, box: BoxSettings) -> RuntimeFactory:
    if missing := [path for path in box.read_only or () if not os.path.exists(path)]:
        raise UsageError(f"{flag('box.read_only')}: there is no {missing[0]} on this machine")
    limits = BoxLimits(**{name: value for name, value in said(box).items() if name in _LIMITS})
    return partial(BubblewrapRuntime, limits=limits, network=policy or NOTHING, read_only=box.read_only or ())


def _container(engine: str) -> Make:
    def make(policy: NetworkPolicy | None, box: BoxSettings) -> RuntimeFactory:
        given = {name: value for name, value in said(box).items() if name != "memory"}
        memory = None if box.memory is None else str(box.memory)
        return partial(DockerRuntime, engine=engine, network=policy or NOTHING, memory=memory, **given)

    return make


@frozen(kw_only=True)
class _Named:
    make: Make
    restricts: bool = True
    """Whether it holds programs to a policy."""
    box: frozenset[str] = frozenset()
    """What of a box can be said of it."""


RUNTIMES: Mapping[str, _Named] = {
    "local": _Named(make=_local, restricts=False),
    "bubblewrap": _Named(make=_bubblewrap, box=_LIMITS | {"read_only"}),
    "docker": _Named(make=_container("docker"), box=frozenset({"image", "memory", "processes"})),
    "podman": _Named(make=_container("podman"), box=frozenset({"image", "memory", "processes"})),
}


def make_runtime(named: str, network: NetworkSettings | None, box: BoxSettings | None) -> RuntimeFactory | Runtime:
    """A factory of runtimes by name or by `module:Class`. A running instance is borrowed by every rollout.

    Raises `UsageError`, also for a policy or a limit that the runtime would not hold programs to.
    """
    policy, box = said(network), box or BoxSettings()
    if named in RUNTIMES:
        known = RUNTIMES[named]
        _refuse(named, "network", () if known.restricts else policy)
        _refuse(named, "box", [name for name in said(box) if name not in known.box])
        try:
            return known.make(NetworkPolicy(**policy) if policy else None, box)
        except (TypeError, ValueError) as error:
            raise UsageError(f"--runtime {named}: {error}") from None
    if not is_reference(named):
        raise UsageError(
            f"--runtime: there is no runtime {named!r}{suggestion(named, RUNTIMES)} (or write module:Class)"
        )
    _refuse(named, "network", policy)
    _refuse(named, "box", said(box))
    found = load(named, "--runtime")
    if isinstance(found, Runtime):
        return found
    if not callable(found) or (isinstance(found, type) and not issubclass(found, Runtime)):
        raise UsageError(f"--runtime: {named} is {kind_of(found)}, not a runtime; derive it from rollout_fsm.Runtime")
    return cast("RuntimeFactory", found)


def _refuse(named: str, group: str, names: Iterable[str]) -> None:
    """Raises `UsageError` for the first of these settings, with the runtimes that know it."""
    for name in names:
        fitting = [
            each for each, known in RUNTIMES.items() if (known.restricts if group == "network" else name in known.box)
        ]
        what = "holds programs to no network policy" if group == "network" else f"has no setting {name}"
        raise UsageError(
            f"{flag(f'{group}.{name}')}: the runtime {named} {what}; use --runtime {' or '.join(fitting)}, or leave "
            f"it out"
        )

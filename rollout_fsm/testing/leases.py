"""Does a runtime keep the contract of its leases?

For their tests: `assert await check_leases(MyRuntime) == []`. It makes real boxes and leaves none behind. What it can
not check is a process that dies; a box whose owner does nothing more stands for that.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rollout_fsm.errors import SandboxError, text
from rollout_fsm.exact_json import FormatError, plain
from rollout_fsm.foreign import call
from rollout_fsm.messages import JSON
from rollout_fsm.runtime import Runtime, RuntimeFactory, class_path, runtime_class

__all__ = ["check_leases"]

FILE, CONTENT = "left-behind", b"what the dead process left"


async def check_leases(factory: RuntimeFactory, *, program: Sequence[str] = ("true",)) -> list[str]:
    """What is wrong with how a runtime is found again after its process died; nothing, if it conforms (L73).

    `factory` makes boxes by name, as `runtime=` takes it; `program` is one that ends with 0 in them. Every fault is
    found that the ones before do not hide.
    """
    made: list[Runtime] = []

    async def box(name: str) -> Runtime:
        runtime = factory(name)
        made.append(runtime)
        return runtime

    try:
        first = await box("lease-1")
        faults, lease = _lease(first)
        if lease is None:
            return faults
        return [
            *faults,
            *_class(type(first)),
            *await _tried("reclaiming a box that was never started", _never_started, first, lease),
            *await _tried("adopting a box", _adopted, await box("lease-2"), program),
            *await _tried("reclaiming a box", _reclaimed, await box("lease-3"), await box("lease-4")),
            *await _tried("reading a lease that is none", _no_lease, type(first)),
        ]
    finally:
        for runtime in made:
            await call(runtime.stop)


def _lease(runtime: Runtime) -> tuple[list[str], dict[str, JSON] | None]:
    """The lease as another process reads it."""
    try:
        given = runtime.lease
    except Exception as error:  # noqa: BLE001  (foreign code)
        return [f"lease raises before start: {text(error)}"], None
    if given is None:
        return ["lease is None before start: it must be known before anything is made"], None
    if not isinstance(given, Mapping):
        return [f"lease is of type {type(given).__name__}; it is a JSON object"], None
    try:
        written = json.loads(json.dumps(plain(given, "lease is no JSON")))
    except FormatError as error:
        return [str(error)], None
    faults = [] if written == runtime.lease else ["lease changes when it is written as JSON and read, or asked again"]
    return faults, written


def _class(kind: type[Runtime]) -> list[str]:
    path = class_path(kind)
    try:
        found = runtime_class(path)
    except SandboxError as error:
        return [f"{error}; define the class at the top of a module"]
    return [] if found is kind else [f"{path} is another class; another process would not find this one"]


async def _tried(doing: str, check: Callable[..., Awaitable[list[str]]], *args: object) -> list[str]:
    try:
        return await check(*args)
    except Exception as error:  # noqa: BLE001  (foreign code)
        return [f"{doing} raised {text(error)}"]


async def _never_started(runtime: Runtime, lease: Mapping[str, JSON]) -> list[str]:
    kind = type(runtime)
    await call(kind.reclaim, lease)
    await call(kind.reclaim, lease)
    adopted = await call(kind.adopt, runtime.name, lease)
    if adopted is None:
        return []
    await call(adopted.stop)
    return ["adopt gives a box that was never started"]


async def _adopted(runtime: Runtime, program: Sequence[str]) -> list[str]:
    kind, lease = type(runtime), runtime.lease
    assert lease is not None
    await call(runtime.start)
    await call(runtime.write, FILE, CONTENT)
    faults = [] if runtime.lease == lease else ["lease is another one after start"]
    adopted = await call(kind.adopt, "adopted", lease)
    if adopted is None:
        return [*faults, "adopt gives None for a box that stands"]
    if adopted.stopped:
        faults.append("an adopted box is stopped")
    if await call(adopted.read, FILE) != CONTENT:
        faults.append("an adopted box has not the files of the box that was left")
    if (result := await call(adopted.run, program)).exit_code != 0:
        faults.append(f"{list(program)!r} ended with {result.exit_code} in an adopted box")
    if adopted.lease != lease:
        faults.append("an adopted box has another lease: what was written down of it is not true any more")
    await call(adopted.stop)
    return [*faults, *await _gone(kind, lease, "after the stop of the box that was adopted")]


async def _reclaimed(runtime: Runtime, other: Runtime) -> list[str]:
    kind, lease = type(runtime), runtime.lease
    assert lease is not None
    for each in (runtime, other):
        await call(each.start)
        await call(each.write, FILE, CONTENT)
    await call(kind.reclaim, lease)
    await call(kind.reclaim, lease)
    faults = ["a box is alive after it was reclaimed"] if await call(runtime.alive) else []
    if await call(other.read, FILE) != CONTENT:
        faults.append("reclaim touched another box")
    return [*faults, *await _gone(kind, lease, "after reclaim")]


async def _gone(kind: type[Runtime], lease: Mapping[str, JSON], when: str) -> list[str]:
    adopted = await call(kind.adopt, "gone", lease)
    if adopted is None:
        return []
    await call(adopted.stop)
    return [f"adopt gives a box {when}: it is still there"]


async def _no_lease(kind: type[Runtime]) -> list[str]:
    try:
        await call(kind.reclaim, {"no": "lease"})
    except SandboxError:
        return []
    return ["reclaim raises no SandboxError for what is no lease of this runtime: it would be taken for removed"]

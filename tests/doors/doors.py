"""Every foreign call that the engine makes, as data: when it is made, whose failure a fault there is, what bounds it,
and what must be released after it. In the order of one rollout's life.

A door says nothing of the engine's code; its columns are the rules of LIFECYCLE: the boundary (L14, L40), the bound
(L2, L37, L55), when a release falls due (L8), and what a fault there means (L3, L20, L35, L41, L42, L51, L63).
"""

from collections.abc import Iterable
from typing import Any, Literal

from attrs import field, frozen

from tests.doors.house import BEYOND, BOUNDS

Means = Literal[
    "mint", "error", "enter", "hook", "model", "naming", "signal",
    "alive", "kill", "stopped", "warning", "log", "leaving", "left", "again",
]  # fmt: skip
"""What a fault there is.

mint      a mistake of the caller's, raised where the rollout is made
error     a failure of the state's activity (L7, L14a)
enter     the same, but what is entered is shared: a task of the engine's enters it, whoever waits for it (L75)
hook      a failure of the task's that interrupts the segment, with a bound of its own (L35, L37)
model     a failure of the model's, however the harness ends (L20)
naming    a failure of the scoring that keeps no signal from running (L63)
signal    a failure that stands and leaves its name None (L63)
alive     a no: the box is dead (L41)
kill      a no: the agent survives (L13)
stopped   nothing: a lent runtime that cannot say that it was stopped was not (L3)
warning   a release step that failed; the others are attempted (L51, L55)
log       an observer's; it disturbs nothing (L42)
leaving   a service's, when every rollout is final (L75)
left      a box of a dead process that stays as it is: said, and left in the journal for the next who comes (L73)
again     the end of the attempts: said, and the trace stands as it is
"""

VALUES = frozenset({"None", "text", "object", "True", "an awaitable", "something hostile"})
"""What a door can wrongly return."""


def all_but(*proper: str) -> frozenset[str]:
    return VALUES - {*proper}


@frozen(kw_only=True)
class Door:
    """One foreign call."""

    name: str
    of: str
    """The part of the contract that it is."""
    state: str
    """The state in which it is made; empty where there is none."""
    means: Means = "error"
    error: str = ""
    """The type of a failure there."""
    says: str = ""
    """How an error or a warning says what was being done."""
    wrong: str = ""
    """How an error says that the wrong thing was returned, where that is said otherwise."""
    bound: str = ""
    """`timeouts.<bound>`; "-" for a bound that no setting changes; empty for what is called and not awaited, which
    nothing can bound."""
    plain_too: bool = False
    """Whether it may be awaited or not (L36)."""
    due: str = ""
    """The release step that it makes due: as soon as it begins, or where `once_had`, when it has returned (L8)."""
    once_had: bool = False
    in_hand: bool = False
    """Whether what is released is what it returned, and not the party that was asked."""
    refuses: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that it must not return; where there are none, what it returns is not looked at."""
    scene: str = "plain"
    noted: bool = True
    """Whether it is one of the steps that every rollout takes, in this order."""

    @property
    def nursery(self) -> Literal["caller", "engine", "remains", "segment", "scoring", "shield"]:
        """Whose nursery the task is in that goes through it: a verb's activities run in its caller's task, turns and
        signals in nurseries of their own (L24, L63), what must not be interrupted under a shield (L13, L70)."""
        match self.means:
            case "enter" | "leaving":
                return "engine"
            case "left":
                return "remains" if self.bound == "-" else "engine"
            case "signal":
                return "scoring"
            case "kill" | "warning":
                return "shield"
            case "hook" | "model":
                return "caller" if self.name in ("intercept.prompt", "intercept.user") else "segment"
        return "caller"

    @property
    def seconds(self) -> float:
        """How long it may take."""
        if self.bound == "-":
            return 60.0
        return float(getattr(BOUNDS, self.bound))


def failure(name: str, of: str, state: str, error: str, says: str, bound: str = "", **more: Any) -> Door:
    return Door(name=name, of=of, state=state, error=error, says=says, bound=bound, **more)


def look(name: str, of: str, state: str, error: str, says: str, **more: Any) -> Door:
    """Something that is only read."""
    return failure(name, of, state, error, says, noted=False, **more)


def hook(name: str, of: str, state: str, says: str, refuses: Iterable[str]) -> Door:
    return Door(
        name=name, of=of, state=state, means="hook", error="TaskError", says=says, bound="hook", plain_too=True,
        refuses=frozenset(refuses),
    )  # fmt: skip


def signal(name: str, of: str, says: str, *, plain_too: bool = True) -> Door:
    return Door(
        name=name, of=of, state="scoring", means="signal", error="TaskError", says=says, bound="scoring",
        plain_too=plain_too, refuses=all_but("True"),
    )  # fmt: skip


def release(name: str, of: str, state: str, kind: str, says: str, bound: str) -> Door:
    return Door(name=name, of=of, state=state, means="warning", error=kind, says=says, bound=bound)


def mistake(name: str, of: str, refuses: Iterable[str] = ()) -> Door:
    return Door(name=name, of=of, state="", means="mint", noted=False, refuses=frozenset(refuses))


def lent(state: str) -> Door:
    return Door(
        name=f"runtime.stopped@{state}", of="Runtime.stopped", state=state, means="stopped", scene="borrowed",
        noted=False, refuses=all_but("None", "something hostile"),
    )  # fmt: skip


def told(event: str, state: str) -> Door:
    name = f"observer.{event}" + (f"@{state}" if event in ("on_transition", "on_activity") else "")
    return Door(name=name, of=f"observer.{event}", state=state, means="log", says=f"raised in {event}", noted=False)


def of_engine(name: str, of: str, says: str) -> Door:
    return Door(name=name, of=of, state="", means="leaving", says=says, bound="-", noted=False)


def box(part: str, scene: str, to_be: str, bound: str, wrong: str = "", refuses: Iterable[str] = ()) -> Door:
    """Of a box that a dead process left."""
    name, of = f"{part}@{scene}", part.replace("r", "R", 1)
    return Door(
        name=name, of=of, state="", means="left", says=f"could not be {to_be}", wrong=wrong, bound=bound, scene=scene,
        noted=False, refuses=frozenset(refuses),
    )  # fmt: skip


NO_BOOL = all_but("True")
NO = NO_BOOL | {"False"}
"""Everything that is not a yes."""

DOORS = (
    # ---- made
    mistake("harness.name", "Harness.name", all_but("text")),
    mistake("model.name", "Model.name", all_but("text")),
    mistake("task.key", "Task.key", all_but("text", "None")),
    told("on_trace", ""),
    # ---- opened: L2, L5
    lent("created"),
    told("on_transition", "booting"),
    told("on_activity", "booting"),
    failure(
        "harness.enter", "Harness.__aenter__", "booting", "HarnessError", "entering the harness", "boot", means="enter"
    ),
    failure(
        "model.enter", "Model.__aenter__", "booting", "ProviderError", "entering the model", "boot", means="enter"
    ),
    failure(
        "runtime.factory", "a RuntimeFactory", "booting", "SandboxError", "starting the runtime",
        wrong="the runtime factory returned", refuses=VALUES,
    ),
    look("runtime.name", "Runtime.name", "booting", "SandboxError", "starting the runtime", refuses=all_but("text")),
    look(
        "runtime.restrict", "Runtime.restrict", "booting", "SandboxError",
        "restricting the runtime to the task's network policy", wrong="restrict() of HouseRuntime returned",
        refuses=all_but("None"),
    ),
    look(
        "runtime.lease", "Runtime.lease", "booting", "SandboxError", "starting the runtime", scene="kept",
        refuses=all_but("None"),
    ),
    failure(
        "runtime.start", "Runtime.start", "booting", "SandboxError", "starting the runtime", "boot",
        due="runtime.stop",
    ),
    failure(
        "runtime.prepare_setup", "Runtime.prepare_setup", "booting", "SandboxError", "preparing the runtime for setup",
        "boot",
    ),
    told("on_transition", "setup"),
    lent("setup"),
    failure("task.setup", "Task.setup", "setup", "TaskError", "task setup", "setup"),
    told("on_activity", "setup"),
    failure(
        "harness.setup", "Harness.setup", "setup", "HarnessError", "harness setup", "setup", due="harness.cleanup"
    ),
    failure(
        "task.toolsets", "Task.toolsets", "setup", "TaskError", "naming the task's tool servers",
        refuses=all_but("text"),
    ),
    failure(
        "toolset.factory", "a factory of tools=", "setup", "ToolsetError", "building the tool servers", refuses=VALUES
    ),
    look(
        "toolset.name", "Toolset.name", "setup", "ToolsetError", "building the tool servers", refuses=all_but("text")
    ),
    failure("first.start", "", "setup", "ToolsetError", "", "setup", due="first.stop", once_had=True),
    failure(
        "toolset.start", "Toolset.start", "setup", "ToolsetError", "starting tool server 'tools'", "setup",
        due="toolset.stop", once_had=True, wrong="its start() returned", refuses=all_but("text"),
    ),
    look(
        "runtime.host_url", "Runtime.host_url", "setup", "SandboxError", "tool server", wrong="host_url() returned",
        refuses=all_but("text"),
    ),
    failure(
        "runtime.prepare_execution", "Runtime.prepare_execution", "setup", "SandboxError",
        "applying the network policy", "setup",
    ),
    look(
        "runtime.restricted", "Runtime.restricted", "setup", "SandboxError", "applying the network policy",
        wrong="restricted of the runtime is", refuses=all_but("True"),
    ),
    hook(
        "intercept.prompt", "Hooks.request_interceptors", "setup", "@intercept 'request_interceptor'", all_but("None")
    ),
    failure(
        "harness.open_session", "Harness.open_session", "setup", "HarnessError", "opening the harness session", "setup",
        due="session.close", once_had=True, in_hand=True, wrong="open_session returned", refuses=VALUES,
    ),
    # ---- stepped: L32
    told("on_transition", "waiting"),
    told("on_activity", "waiting"),
    told("on_transition", "stepping"),
    lent("stepping"),
    hook(
        "intercept.user", "Hooks.request_interceptors", "stepping", "@intercept 'request_interceptor'", all_but("None")
    ),
    failure(
        "session.run", "HarnessSession.run", "stepping", "HarnessError", "segment", "agent", wrong="run() returned",
        refuses=all_but("None"),
    ),
    hook("stop.trace", "Hooks.trace_stops", "stepping", "@stop 'trace_stop'", NO_BOOL),
    hook(
        "intercept.request", "Hooks.request_interceptors", "stepping", "@intercept 'request_interceptor'",
        all_but("None"),
    ),
    hook("stop.request", "Hooks.request_stops", "stepping", "@stop 'request_stop'", NO_BOOL),
    told("on_activity", "stepping"),
    failure(
        "model.respond", "Model.respond", "stepping", "ProviderError", "the call of model 'model'", "agent",
        means="model", refuses=VALUES,
    ),
    hook(
        "intercept.response", "Hooks.response_interceptors", "stepping", "@intercept 'response_interceptor'",
        all_but("None"),
    ),
    hook("stop.response", "Hooks.response_stops", "stepping", "@stop 'response_stop'", NO_BOOL),
    # ---- asked only when it went wrong: L13, L41
    Door(
        name="runtime.alive", of="Runtime.alive", state="stepping", means="alive", error="SandboxError",
        says="found dead", bound="close", refuses=NO, scene="the program fails", noted=False,
    ),
    Door(
        name="runtime.kill", of="Runtime.kill", state="stepping", means="kill", error="SandboxError", says="survived",
        bound="close", refuses=NO, scene="the agent fails", noted=False,
    ),
    # ---- closed: L50
    told("on_transition", "closing"),
    told("on_activity", "closing"),
    release("session.close", "HarnessSession.close", "closing", "close", "harness session did not close", "close"),
    release("toolset.stop", "Toolset.stop", "closing", "close", "tool server 'tools' did not close", "close"),
    release("first.stop", "", "closing", "close", "", "close"),
    told("on_transition", "finalizing"),
    told("on_activity", "finalizing"),
    lent("finalizing"),
    failure("task.finalize", "Task.finalize", "finalizing", "TaskError", "finalize", "finalize"),
    told("on_transition", "scoring"),
    told("on_activity", "scoring"),
    failure(
        "task.judges", "Task.judges", "scoring", "TaskError", "naming the judges", means="naming", refuses=VALUES
    ),
    look(
        "judge.name", "Judge.name", "scoring", "TaskError", "naming the judges", means="naming",
        refuses=all_but("text"),
    ),
    look("judge.weight", "Judge.weight", "scoring", "TaskError", "naming the judges", means="naming", refuses=VALUES),
    lent("scoring"),
    signal("metric.harness", "Hooks.metrics of a harness", "metric 'its_own'"),
    signal("metric.task", "Hooks.metrics", "metric 'measured'"),
    signal("reward", "Hooks.rewards", "reward 'good'"),
    signal("judge.score", "Judge.score", "judge 'judge'", plain_too=False),
    told("on_transition", "releasing"),
    told("on_activity", "releasing"),
    release("harness.cleanup", "Harness.cleanup", "releasing", "cleanup", "harness 'harness' was not cleaned up",
            "release"),
    release("runtime.stop", "Runtime.stop", "releasing", "leaked", "could not be stopped and may be leaked", "release"),
    told("on_transition", "completed"),
    told("on_finished", "completed"),
    # ---- when every rollout is final: L75
    of_engine("harness.leave", "Harness.__aexit__", "leaving HouseHarness"),
    of_engine("model.leave", "Model.__aexit__", "leaving HouseModel"),
)  # fmt: skip
BY_NAME = {door.name: door for door in DOORS}
BROKEN = tuple(door for door in DOORS if door.of)
"""The doors at which faults are tried; the others belong to a first tool server, which is well."""

RESUMED = (
    box("runtime.reclaim", "cut off", "removed", "-"),
    box("runtime.reclaim", "gone", "removed", "-"),
    box("runtime.adopt", "to be scored", "taken over", "boot", "adopt() returned", refuses=all_but("None")),
    box("runtime.adopt", "to be released", "taken over", "boot", "adopt() returned", refuses=all_but("None")),
    box("runtime.name", "to be scored", "taken over", "", "the name of LeftBox", refuses=all_but("text")),
)
"""What is called when a run is gone on with whose process died (tests/doors/resumed.py)."""

RETRIED = (
    Door(
        name="backoff", of="RetryPolicy.backoff", state="failed", means="again", says="the back-off", refuses=VALUES,
        noted=False,
    ),
    Door(
        name="observer.on_retry", of="observer.on_retry", state="failed", means="log", says="raised in on_retry",
        noted=False,
    ),
)  # fmt: skip
"""What is called where another attempt may follow (tests/doors/retried.py)."""
EVERY = (*BROKEN, *RESUMED, *RETRIED)
PATH = tuple(door.name for door in DOORS if door.noted)
"""What every rollout does of the outside world, in this order."""

NO_DOORS = {
    "Runtime.run": "for harnesses and tasks: the engine runs no program",
    "Runtime.read": "for harnesses and tasks: the engine reads no file",
    "Runtime.write": "for harnesses and tasks: the engine writes no file",
    "Model.stream_response": "called in the place of respond, where a harness wants a stream (tests/test_streaming.py)",
    "Model.count_tokens": "called in no turn, where a harness asks (tests/test_streaming.py)",
    "Judge.model": "held, and entered as every model is (tests/judges)",
    "Toolset.tool_timeout": "a number, read where the contract's own start serves it (tests/toolsets)",
    "Task.opening": "the contract's own reading of the prompt; not for overriding",
    "Task.hash": "the contract's own content hash; not for overriding",
}
"""Public parts of contracts that the engine does not call, or whose code is its own."""


def late(door: Door, beyond: bool) -> float:
    """When a door returns that did not return in time."""
    return door.seconds + (BEYOND if beyond else 0.0)

"""The contract of a harness: the program around the model, and what it is given to run one exchange."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import field, frozen

from rollout_fsm.foreign import optional
from rollout_fsm.held_open import HeldOpen, Hold, nobody_holds
from rollout_fsm.messages import Deliver, Delivery, Message, Request, Response
from rollout_fsm.runtime import ProgramResult, Runtime

if TYPE_CHECKING:
    from rollout_fsm.trace import Trace

T = TypeVar("T")


class Respond(Protocol):
    """Whoever answers a turn."""

    async def __call__(self, request: Request, *, deliver: Deliver | None) -> Response:
        """Answer one turn."""
        ...


@frozen(kw_only=True, eq=False)
class Exchange:
    """What a harness session is given: the opening of the conversation, a runtime, and two ways to the model."""

    prompt: tuple[Message, ...]
    """The task's prompt as the interceptors left it; empty if the user opens the conversation."""
    system_prompt: str | None
    runtime: Runtime
    endpoint: str
    """Base URL of the gateway as a program in the runtime reaches it (`…/v1`); empty where there is no gateway."""
    secret: str
    """The rollout's own key for the gateway, a bearer token; empty where there is none."""
    tool_urls: Mapping[str, str]
    """Name to URL of the tool servers, as programs in the runtime reach them."""
    local_tool_urls: Mapping[str, str] = field(factory=dict)
    """The same as this process reaches them."""
    trace: "Trace"
    _respond: Respond = field(repr=False)
    _hold: Hold = field(default=nobody_holds, repr=False)
    _remaining: Callable[[], float] = field(repr=False)

    async def respond(self, request: Request, *, deliver: Deliver | None = None) -> Response:
        """One turn, in process: the same limits, stops, hooks and commit as over the gateway. `deliver` takes the
        pieces of the answer while it is made; where a hook has yet to see the answer, it is told nothing.

        Raises `TurnRefused` when the turn is not admitted (L16), `ProviderError` when the model failed (L20),
        `TaskError` when a hook did (L35).
        """
        return await self._respond(request, deliver=None if deliver is None else Delivery(deliver))

    async def hold(self, manager: AbstractAsyncContextManager[T], *, name: str) -> HeldOpen[T]:
        """Have a context manager entered by a task of the engine, for a harness in this process that holds something
        open from segment to segment. It is left by `leave()`, at the latest after the session's `close`. `name`: what
        messages call it.

        Raises what entering it raised, and `RuntimeError` outside of an engine. A cancellation undoes the entering.
        """
        return await self._hold(manager, name=name)

    @property
    def time_remaining(self) -> float:
        """Seconds of the agent budget that are left; infinite where there is no bound (L12)."""
        return self._remaining()


class HarnessSession(ABC):
    """One exchange, run segment by segment."""

    @abstractmethod
    async def run(self, messages: Sequence[Message] | None) -> ProgramResult | None:
        """Run one segment, until the harness yields.

        The first segment opens with the exchange's prompt, then `messages` if any; later ones go on with `messages`
        (L10). A harness whose segment is a program returns how it ended: the engine judges the exit status (L16, L20,
        L41). Others return None. What it raises is a `HarnessError` unless it is typed (L40).
        """

    @optional
    async def close(self) -> None:
        """End the session. Bounded by `timeouts.close`; a failure is a warning (L51)."""


class Harness(ABC):
    """The program around the model. One object serves many rollouts at once; what belongs to one lives in its session.

    What holds something open is an async context manager, which the engine enters once. `@metric` methods measure each
    of its rollouts (L30, L62).
    """

    @property
    def name(self) -> str:
        """What the harness is called on a trace."""
        return type(self).__name__

    @optional
    async def setup(self, runtime: Runtime) -> None:
        """Prepare a runtime: install, copy, configure. Shares `timeouts.setup` with the task's setup (L4)."""

    @abstractmethod
    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """Open the session of one rollout. An open that fails undoes itself (L8)."""

    @optional
    async def cleanup(self, trace: "Trace", runtime: Runtime) -> None:
        """Undo what `setup` did; called once if `setup` began, bounded by `timeouts.release` (L8, L55)."""

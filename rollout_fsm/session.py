"""One turn across the model boundary: limits, stops, interceptors, the model, the commit (L15-L24, L30-L37).

There is one way through. An in-process harness calls `respond`, a harness program posts to the gateway, which calls the
same `respond`. A call is admitted while a segment runs and lives in that segment's nursery, so the segment is over when
its calls are. The session decides no state: it fires `refused`, reports a failing hook to the segment, and reads
whether turns are admitted.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from typing import Protocol

import trio
from attrs import define, evolve, field

from rollout_fsm.clock import AnchoredClock
from rollout_fsm.errors import (
    ErrorRecord,
    OverlongPromptError,
    ProviderError,
    RolloutError,
    TaskError,
    TurnRefused,
    attribute,
    record,
)
from rollout_fsm.hooks import BoundHook
from rollout_fsm.messages import AssistantMessage, Message, Request, Response, SystemMessage, ToolMessage, UserMessage
from rollout_fsm.outcome import pass_on, plain
from rollout_fsm.plan import Plan
from rollout_fsm.runtime import Runtime
from rollout_fsm.trace import ModelCall, Rewrite, Span, Trace, TraceWarning

log = logging.getLogger("rollout_fsm")


class Owner(Protocol):
    """The rollout, as its session sees it."""

    @property
    def admits_turns(self) -> bool:
        """Whether a turn may be admitted or refused now: a segment runs."""
        ...

    @property
    def asks_stops(self) -> bool:
        """Whether the exchange is not being stopped yet."""
        ...

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over."""
        ...

    def refuse(self, condition: str) -> None:
        """Fire `refused` with the stop condition."""
        ...


class SegmentEnded(TurnRefused):
    """The segment ended while the call was in flight: it was cut off and commits nothing (L24)."""


@define(eq=False)
class Call:
    """A model call that was admitted."""

    segment: "Segment"
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    done: trio.Event = field(factory=trio.Event)
    answered: bool = False
    """Whether the model has answered: from then on a hang-up changes nothing (L33)."""
    awaited: bool = True
    """Whether somebody waits for the answer; an error that nobody takes is not kept, since it would keep itself."""
    response: Response | None = None
    error: RolloutError | TurnRefused | None = None

    def hang_up(self) -> None:
        """The harness gave the call up."""
        self.awaited = False
        if not self.answered:
            self.scope.cancel()
            self.segment.leave(self)

    def fail(self, error: RolloutError | TurnRefused) -> None:
        """What the harness is to be told instead of an answer."""
        self.error = error if self.awaited else None

    def result(self) -> Response:
        """The answer, or what the harness is to be told."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            if self.response is None:
                raise SegmentEnded("the segment ended while the call was in flight")
            return self.response
        finally:
            del error


@define(eq=False)
class Segment:
    """One segment, as far as its model calls know it."""

    owner: Owner
    turns_before: int
    deadline: trio.CancelScope
    """The scope whose deadline is the end of the agent budget, or of the drain (L12, L18)."""
    drain: float
    nursery: trio.Nursery | None = None
    """Where its calls live; None before and after it."""
    interrupt: trio.CancelScope = field(factory=trio.CancelScope)
    in_flight: set[Call] = field(factory=set)
    model_failure: ErrorRecord | None = None
    """The last model call failed with this, and no later one succeeded (L20)."""
    hook_failure: ErrorRecord | None = None
    """A hook failed with this, which ends the segment (L35)."""
    survives: bool = False
    """The agent's processes could not be killed (L13)."""

    def begin(self) -> tuple[Call, trio.Nursery]:
        """Admit a call: its place is taken in the same step in which the limits were asked (L15)."""
        assert self.nursery is not None
        call = Call(self)
        self.in_flight.add(call)
        return call, self.nursery

    def leave(self, call: Call) -> None:
        """The call is over, or is not to count any more: its place is free (L15, L18)."""
        self.in_flight.discard(call)
        self.start_drain()

    def start_drain(self) -> None:
        """A refused harness has `timeouts.drain` from the last answer, or from the refusal if nothing is in flight
        (L18)."""
        if self.owner.admits_turns and not self.owner.asks_stops and not self.in_flight:
            self.deadline.deadline = min(self.deadline.deadline, trio.current_time() + self.drain)


@define(eq=False)
class Session:
    """The model boundary of one rollout."""

    plan: Plan
    trace: Trace
    clock: AnchoredClock
    runtime: Runtime
    owner: Owner | None
    """None once the rollout has let go of it; nothing is admitted any more."""
    segment: Segment | None = None
    model_time: float = 0.0
    """Seconds spent in model calls (L80)."""
    _intercepted: Counter[bytes] = field(factory=Counter)
    """Messages that passed the interceptors before the harness saw them, and were not committed yet (L6)."""
    _usage_unknown: bool = False

    async def respond(self, request: Request) -> Response:
        """One turn. Raises `TurnRefused`, `ProviderError` or `TaskError`; what else could be raised would be a bug."""
        call, nursery = self._admit()
        nursery.start_soon(self._turn, call, request)
        try:
            await call.done.wait()
        except BaseException:
            call.hang_up()
            raise
        return call.result()

    async def run(self, run: Callable[[], Awaitable[object]], segment: Segment) -> object:
        """Run a segment of the harness, with its calls in a nursery that ends when the harness does (L24).

        Raises what the harness raised. A failing hook interrupts it (L35).
        """
        value: object = None
        error: BaseException | None = None
        with segment.interrupt:
            async with trio.open_nursery() as nursery:
                segment.nursery = nursery
                try:
                    value = await run()
                except GeneratorExit:
                    raise
                except BaseException as raised:  # noqa: BLE001  (raised again: the nursery would swallow a stray Cancelled)
                    error = raised
                finally:
                    segment.nursery = None
                    nursery.cancel_scope.cancel()
            try:
                if error is not None:
                    raise error
            finally:
                error = None  # a frame that keeps an exception is kept by it
        return value

    async def intercept(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Pass messages through the request interceptors before the harness sees them (L6). Raises `TaskError`."""
        if not self.plan.hooks.request_interceptors or not messages:
            return tuple(messages)
        before = self._shown()
        request = Request(messages=(*before, *messages))
        candidates = {at for at in range(len(before), len(request.messages)) if _rewritable(request.messages[at])}
        try:
            rewritten = await self._rewrite_request(request, candidates=candidates, settled=set())
        except _HookFailed as failed:
            raise failed.error from failed.error.__cause__
        passed = rewritten.messages[len(before) :]
        self._intercepted.update(message.key for message in passed if _rewritable(message))
        return passed

    # ---- one call

    def _admit(self) -> tuple[Call, trio.Nursery]:
        """Admit the call and reserve its place, or refuse it: one synchronous step (L15, L17, L24, L58)."""
        owner, segment = self.owner, self.segment
        if owner is None or owner.concluded:
            raise TurnRefused("rollout concluded")
        if segment is None or segment.nursery is None or not owner.admits_turns:
            raise TurnRefused("no segment is running")
        condition = self.trace.stop_condition or self.plan.limits.reached(self.trace, len(segment.in_flight))
        if condition is not None:
            raise self._refuse(segment, condition)
        return segment.begin()

    def _refuse(self, segment: Segment, condition: str) -> TurnRefused:
        segment.owner.refuse(condition)
        segment.start_drain()
        first = self.trace.stop_condition
        return TurnRefused(f"rollout stopped: {first}", condition=first)

    async def _turn(self, call: Call, request: Request) -> None:
        """The life of a call, in a task of the segment's nursery."""
        segment = call.segment
        hook_failure: ErrorRecord | None = None
        try:
            with call.scope:
                call.response = await self._answer(call, request)
        except (TurnRefused, ProviderError) as told:
            call.fail(told)
        except _HookFailed as failed:
            call.fail(failed.error)
            hook_failure = record(failed.error)
        finally:
            segment.leave(call)
            call.done.set()
        if hook_failure is not None:  # after the answer, in the same step: who waits for it is told before it is struck
            self._hook_failed(segment, hook_failure)

    async def _answer(self, call: Call, request: Request) -> Response:
        segment, hooks = call.segment, self.plan.hooks
        await self._ask(call, hooks.trace_stops, {})
        placement = self.trace.place(request.messages)
        known = placement.known
        request = evolve(request, messages=placement.messages)
        original = request
        request = await self._intercept_request(request, known)
        originals = {
            at: before
            for at, (before, after) in enumerate(zip(original.messages, request.messages, strict=True))
            if before is not after and before.key != after.key
        }
        try:
            await self._ask(call, hooks.request_stops, {"request": request})
        except TurnRefused:
            self._commit(request, None, originals)
            raise
        response, record_call = await self._call_model(call, request)
        try:
            response = await self._intercept_response(response)
            fired = await self._fired(call, hooks.response_stops, {"response": response})
        except BaseException:
            record_call(None, None)
            raise
        await trio.lowlevel.checkpoint_if_cancelled()  # a hook that swallowed the end of the segment commits nothing
        node = self._commit(request, response, originals)
        record_call(node, None)
        segment.model_failure = None
        if fired is not None:
            segment.leave(call)
            raise self._refuse(segment, fired)
        return response

    async def _ask(self, call: Call, stops: Sequence[BoundHook], crossing: Mapping[str, object]) -> None:
        """Ask stops in order; the first that fires refuses the turn (L32, L34)."""
        fired = await self._fired(call, stops, crossing)
        if fired is not None:
            call.segment.leave(call)
            raise self._refuse(call.segment, fired)

    async def _fired(self, call: Call, stops: Sequence[BoundHook], crossing: Mapping[str, object]) -> str | None:
        """The name of the first stop that fires. While the exchange is being stopped, none is asked (L17)."""
        for stop in stops:
            if not call.segment.owner.asks_stops:
                return None
            verdict = await self._call_hook(stop, f"@stop {stop.name!r}", crossing)
            if not isinstance(verdict, bool):
                raise _HookFailed(TaskError(f"@stop {stop.name!r} returned {verdict!r}; a stop returns True or False"))
            if verdict and call.segment.owner.asks_stops:
                return stop.name
        return None

    async def _call_model(
        self, call: Call, request: Request
    ) -> tuple[Response, "Callable[[int | None, ErrorRecord | None], None]"]:
        """Call the model. Returns its answer and what puts the call on the trace once it is known what came of it."""
        plan, segment = self.plan, call.segment
        sampling = plan.sampling.over(request.sampling)
        started = trio.current_time()
        span = Span(start=self.clock.now())
        answer: Response | None = None
        failure: ProviderError | None = None

        def record_call(node: int | None, error: ErrorRecord | None) -> None:
            self.trace.record_call(
                ModelCall(
                    node=node,
                    model=plan.model.name,
                    sampling=sampling,
                    finish_reason=answer.finish_reason if isinstance(answer, Response) else None,
                    usage=answer.usage if isinstance(answer, Response) else None,
                    time=span,
                    error=error,
                )
            )

        error: BaseException | None = None
        try:
            answer = await plan.model.respond(request, sampling)
        except GeneratorExit:
            raise
        except BaseException as raised:  # noqa: BLE001  (foreign code; what it means is judged below)
            error = raised
        self.model_time += trio.current_time() - started
        span.end = self.clock.now()
        try:
            pass_on(error)
            await (
                trio.lowlevel.checkpoint_if_cancelled()
            )  # cut off, or given up: whatever came out, it is not an answer
            failure = self._model_failure(answer, error)
            if failure is None:
                assert isinstance(answer, Response)
                call.answered = True
                return answer, record_call
            record_call(None, record(failure))
            if isinstance(failure, OverlongPromptError):
                segment.leave(call)
                raise self._refuse(segment, "context_length")
            segment.model_failure = record(failure)
            raise failure
        finally:
            error = failure = None  # a frame that keeps an exception is kept by it

    def _model_failure(self, answer: object, error: BaseException | None) -> ProviderError | None:
        """What is wrong with a call of the model, attributed to it (L40); None if it is an answer that can be used."""
        doing = f"the call of model {self.plan.model.name!r}"
        if error is not None:
            attributed = attribute(_first(error, ProviderError, doing), ProviderError, doing)
            return attributed if isinstance(attributed, ProviderError) else _as_provider_error(attributed, doing)
        if not isinstance(answer, Response) or not isinstance(answer.message, AssistantMessage):
            return ProviderError(
                f"{doing} returned {type(answer).__name__}; a model returns a Response with an AssistantMessage"
            )
        if answer.usage is None and self.plan.limits.cap_tokens:
            if self.plan.policy.unknown_usage == "fail":
                return ProviderError(
                    f"{doing} reported no usage, so the token caps cannot be enforced (policy unknown_usage = fail)"
                )
            if not self._usage_unknown:
                self._usage_unknown = True
                message = f"{doing} reported no usage: the token caps do not hold for such replies"
                self.trace.warnings.append(TraceWarning(kind="unknown_usage", message=message))
        return None

    def _commit(self, request: Request, response: Response | None, originals: Mapping[int, Message]) -> int | None:
        node = self.trace.commit(request.messages, response, originals=originals, time=self.clock.now())
        if request.tools:
            self.trace.tools[:] = request.tools
        if self._intercepted:
            self._intercepted -= Counter(message.key for message in request.messages if _rewritable(message))
        return node

    # ---- hooks

    async def _intercept_request(self, request: Request, known: int) -> Request:
        """Pass a request through the interceptors, unless all that is new in it has passed them before (L6, L33)."""
        if not self.plan.hooks.request_interceptors:
            return request
        new = {at for at in range(known, len(request.messages)) if _rewritable(request.messages[at])}
        passed, left = set(), self._intercepted.copy()
        for at in sorted(new):
            key = request.messages[at].key
            if left[key] > 0:
                left[key] -= 1
                passed.add(at)
        if new and new == passed:
            return request
        return await self._rewrite_request(request, candidates=new - passed, settled=passed)

    async def _rewrite_request(self, request: Request, *, candidates: set[int], settled: set[int]) -> Request:
        rewrites: list[Rewrite] = []
        for interceptor in self.plan.hooks.request_interceptors:
            said = f"@intercept {interceptor.name!r}"
            given = await self._call_hook(interceptor, said, {"request": deepcopy(request)})
            if given is None:
                continue
            if not isinstance(given, Request):
                raise _HookFailed(TaskError(f"{said} returned {type(given).__name__}; it returns a Request or None"))
            rewritten = _checked(request, given, said, candidates=candidates, settled=settled)
            if rewritten.messages != request.messages:
                request = rewritten
                rewrites.append(Rewrite(interceptor.name))
        self.trace.request_rewrites += rewrites
        return request

    async def _intercept_response(self, response: Response) -> Response:
        rewrites: list[Rewrite] = []
        for interceptor in self.plan.hooks.response_interceptors:
            said = f"@intercept {interceptor.name!r}"
            given = await self._call_hook(interceptor, said, {"response": deepcopy(response)})
            if given is None or given == response:
                continue
            if not isinstance(given, Response) or not isinstance(given.message, AssistantMessage):
                raise _HookFailed(TaskError(f"{said} returned {type(given).__name__}; it returns a Response or None"))
            if evolve(given, message=response.message, finish_reason=response.finish_reason) != response:
                raise _HookFailed(
                    TaskError(f"{said} changed more than the assistant's message; that is all it may replace")
                )
            if given.message != AssistantMessage(given.message.content):
                raise _HookFailed(
                    TaskError(
                        f"{said} returned a message with tool calls or hidden reasoning; a replacement is inert text"
                    )
                )
            response = evolve(given, finish_reason="stop")
            rewrites.append(Rewrite(interceptor.name))
        self.trace.response_rewrites += rewrites
        return response

    async def _call_hook(self, hook: BoundHook, said: str, crossing: Mapping[str, object]) -> object:
        """Call a stop or an interceptor, bounded by `timeouts.hook` (L35, L37)."""
        bound, started = self.plan.bounds.hook, trio.current_time()
        error: BaseException | None = None
        value: object = None
        with trio.CancelScope(deadline=started + bound):
            try:
                value = await hook({"task": self.plan.task, "trace": self.trace, "runtime": self.runtime, **crossing})
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001  (foreign code; what it means is judged below)
                error = raised
        elapsed = trio.current_time() - started
        try:
            pass_on(error)
            await trio.lowlevel.checkpoint_if_cancelled()
            if elapsed >= bound:
                raise _HookFailed(TaskError(f"{said} timed out after {elapsed:g} s (timeouts.hook = {bound:g} s)"))
            if error is None:
                return value
            raise _HookFailed(attribute(_first(error, TaskError, said), TaskError, said))
        finally:
            error = None

    def _hook_failed(self, segment: Segment, failure: ErrorRecord) -> None:
        """A failing hook interrupts the segment and fails the rollout; while it is being stopped it is a warning
        (L35)."""
        if segment.owner.asks_stops:
            segment.hook_failure = segment.hook_failure or failure
            segment.interrupt.cancel()
        else:
            self.trace.warnings.append(TraceWarning(kind="after_stop", message=f"{failure.type}: {failure.message}"))

    def _shown(self) -> tuple[Message, ...]:
        """The conversation that an opening message joins: shown to interceptors, not theirs to change (L6)."""
        branches = self.trace.branches
        if branches:
            return tuple(node.message for node in branches[-1])
        system = self.plan.task.system_prompt
        return () if system is None else (SystemMessage(system),)


class _HookFailed(Exception):  # noqa: N818
    """Carries a hook's failure from where it happened to where the segment learns of it."""

    def __init__(self, error: RolloutError) -> None:
        super().__init__(str(error))
        self.error = error


def _first(error: BaseException, boundary: type[RolloutError], doing: str) -> BaseException:
    """The primary one of what was raised; a Cancelled that nobody's scope sent is a failure like any other (L14a)."""
    return next(iter(plain(error)), None) or boundary(f"{doing} raised Cancelled although nothing was cancelled")


def _rewritable(message: Message) -> bool:
    return isinstance(message, UserMessage | ToolMessage)


def _as_provider_error(error: RolloutError, doing: str) -> ProviderError:
    """A failure that the model's code typed as somebody else's is still the model's call that failed (L20)."""
    failure = ProviderError(f"{doing} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _checked(before: Request, after: Request, said: str, *, candidates: set[int], settled: set[int]) -> Request:
    """The rewritten request, if the interceptor kept to what it may rewrite (L33); else `_HookFailed` says what it
    did."""

    def refuse(what: str) -> _HookFailed:
        return _HookFailed(
            TaskError(f"{said} {what}; an interceptor may rewrite the content of new user and tool messages only")
        )

    if len(after.messages) != len(before.messages):
        raise refuse(f"returned {len(after.messages)} messages for {len(before.messages)}")
    if evolve(after, messages=before.messages) != before:
        raise refuse("changed the tools, the model or the sampling")
    messages = list(after.messages)
    for at, (old, new) in enumerate(zip(before.messages, after.messages, strict=True)):
        if old == new:
            messages[at] = old
        elif at in settled:
            messages[at] = old  # it passed the interceptors before the harness saw it, and is not rewritten again (L6)
        elif at not in candidates:
            raise refuse(f"changed message {at} ({old.role}), which is no new user or tool message")
        elif type(old) is not type(new):
            raise refuse(f"turned message {at} from {old.role} into {getattr(new, 'role', type(new).__name__)}")
        elif isinstance(old, ToolMessage) and isinstance(new, ToolMessage) and evolve(new, content=old.content) != old:
            raise refuse(f"changed the tool call of message {at}")
    return evolve(after, messages=tuple(messages))

"""One turn across the model boundary: limits, stops, interceptors, the model, the commit (L15-L24, L30-L37).

There is one way through. An in-process harness calls `respond`, a harness program posts to the gateway, which calls the
same `respond`. A call is admitted while a segment runs and lives in that segment's nursery, so the segment is over when
its calls are. The session decides no state: it fires `refused`, and tells the segment when a hook fails.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial

import trio
from attrs import define, evolve, field

from rollout_fsm import foreign
from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.clock import AnchoredClock
from rollout_fsm.counting import Count
from rollout_fsm.errors import (
    ErrorRecord,
    OverlongPromptError,
    ProviderError,
    TaskError,
    TurnRefused,
    attribute,
    record,
)
from rollout_fsm.hooks import BoundHook
from rollout_fsm.interception import (
    bodiless,
    fault_of_answer,
    private_request,
    private_response,
    rewritable,
    rewritten_request,
    rewritten_response,
)
from rollout_fsm.messages import Deliver, Delivery, Message, Request, Response, SystemMessage
from rollout_fsm.outcome import failed, interrupts, meet_cancellation, pass_on, plain
from rollout_fsm.parties import Party
from rollout_fsm.plan import Plan
from rollout_fsm.provider_policy import asked_of
from rollout_fsm.runtime import Runtime
from rollout_fsm.segment_run import Call, Gate, SegmentEnded, SegmentRun
from rollout_fsm.trace import ModelCall, Placement, Rewrite, Span, Trace, TraceWarning
from rollout_fsm.turn_failures import HookFailed, blaming, carried, of_the_model

LEFT = "a model call in flight when its segment ended"
"""What is named in the log when such a call will not be cancelled (L74)."""

protected = trio.lowlevel.enable_ki_protection
"""Ctrl-C strikes at checkpoints only, never between a commit and the record of its call."""


@define(eq=False)
class Session:
    """The model boundary of one rollout."""

    plan: Plan
    trace: Trace
    clock: AnchoredClock
    runtime: Runtime
    gate: Gate | None
    """None once the rollout has let go of it; nothing is admitted any more."""
    changed: Callable[[], None] = field(repr=False)
    """Told when a turn waits for somebody else."""
    segment: SegmentRun | None = None
    model_time: float = 0.0
    """Seconds spent in model calls (L80)."""
    restricted: bool = False
    """Whether the network of the agent is restricted, so that the model's provider is not to reach it instead."""
    _opening: tuple[Message, ...] = ()
    """The prompt as the interceptors left it: what the user's first words join."""
    _usage_unknown: bool = False
    waits: tuple[tuple[Party, str], ...] = ()
    """For whom the turns that go on wait, and for what; the latest is the last."""
    _intercepted: Counter[Hashable] | None = None
    """Messages that passed the interceptors before the harness saw them, and were not committed yet (L6); None where
    there are no interceptors."""

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over."""
        return self.gate is None or self.gate.concluded

    @protected
    async def respond(self, request: Request, *, deliver: Deliver | None = None, keep_answer: bool = False) -> Response:
        """One turn. Raises `TurnRefused`, `ProviderError` or `TaskError`, and `TypeError` for what is no `Request`.

        `deliver` takes the pieces of the answer while the model makes it; where a hook has yet to see the answer, it is
        told nothing. The turn is committed when this returns. A caller that is cancelled gives the turn up until the
        model has answered (L33); with `keep_answer` it is from then on given the answer all the same: the turn commits,
        and somebody may ask for it again.
        """
        if not isinstance(request, Request):
            raise TypeError(f"respond() takes a Request, not {type(request).__name__}")
        while (pause := self._pause()) is not None:
            with self._waiting("engine", "the end of the pause"):
                await pause.wait()
        call, nursery = self._admit()
        self.plan.services.flow.start(
            call.segment.context, lambda: nursery.start_soon(self._turn, call, request, deliver)
        )
        return await call.wait(keep_answer=keep_answer)

    async def count_tokens(self, request: Request) -> int:
        """How many tokens a prompt has, by the model's own count where it has one; else a quarter of its characters.

        No turn: no limit, stop or hook is asked. It ends with the segment, as turns do (L24). Raises `TurnRefused`
        where no turn would be admitted, and `ProviderError`.
        """
        gate, segment, condition = self.gate, self.segment, self.trace.stop_condition
        if gate is None or gate.concluded:
            raise TurnRefused("rollout concluded")
        if not gate.asks_stops or segment is None or segment.nursery is None:
            raise TurnRefused(f"rollout stopped: {condition}" if condition else "no segment is running")
        count = Count(self.plan, request)
        segment.nursery.start_soon(count.run)
        return await count.result()

    async def run(self, run: Callable[[], Awaitable[object]], segment: SegmentRun) -> Attempt[object]:
        """Run a segment of the harness, with its calls in a nursery that ends when the harness does (L24).

        A failing hook interrupts it (L35). What a turn's task raised, a bug, comes in a group with what the harness
        did.
        """
        ran: Attempt[object] = Attempt()
        overdue = self.plan.services.overdue

        async def with_calls() -> None:
            nonlocal ran
            try:
                async with trio.open_nursery() as nursery:
                    segment.nursery = nursery
                    ran = await attempt(run)
                    segment.nursery = None
                    if nursery.child_tasks:
                        overdue.cut_off(nursery.cancel_scope, rollout=self.trace.id, doing=lambda: LEFT)
            finally:
                overdue.ended(nursery.cancel_scope)

        crashed = (await attempt(with_calls)).error
        segment.nursery = None
        if not plain(crashed) and not interrupts(crashed):
            return ran
        both = [error for error in (ran.error, crashed) if error is not None]
        return Attempt(error=both[0] if len(both) == 1 else BaseExceptionGroup("segment", both))

    async def intercept(self, messages: Sequence[Message], *, opening: bool = False) -> tuple[Message, ...]:
        """Pass messages through the request interceptors before the harness sees them (L6). Raises `TaskError`."""
        passed = tuple(messages)
        if self.plan.hooks.request_interceptors and passed:
            shown = self._shown()
            request = Request(messages=(*shown, *passed))
            candidates = {at for at in range(len(shown), len(request.messages)) if rewritable(request.messages[at])}
            done = await attempt(self._rewrite_request, request, candidates=candidates, settled=set())
            try:
                if done.value is None:
                    raise carried(done.error)
                passed = done.value.messages[len(shown) :]
            finally:
                del done  # a frame that keeps an exception which it raises is kept by it
            again = Counter(message.key for message in passed if rewritable(message))
            self._intercepted = again if self._intercepted is None else self._intercepted + again
        if opening:
            self._opening = passed
        return passed

    def _waiting(self, party: Party, doing: str) -> "_Wait":
        """A turn waits for somebody in the block."""
        return _Wait(self, (party, doing))

    # ---- one call

    def _pause(self) -> trio.Event | None:
        """The pause that holds a turn which would be admitted now."""
        pause, gate = self.plan.services.flow.paused, self.gate
        return pause if pause is not None and gate is not None and gate.asks_stops else None

    def _admit(self) -> tuple[Call, trio.Nursery]:
        """Admit the call and reserve its place, or refuse it: one synchronous step (L15, L17, L24, L58)."""
        gate, segment = self.gate, self.segment
        if gate is None or gate.concluded:
            raise TurnRefused("rollout concluded")
        if segment is not None and segment.hook_failures and gate.admits_turns:
            raise SegmentEnded("the segment ended: a hook failed")
        if segment is None or segment.nursery is None or not gate.admits_turns:
            raise TurnRefused("no segment is running")
        condition = self.trace.stop_condition or self.plan.services.flow.ends_turns
        condition = condition or self.plan.limits.reached(self.trace, len(segment.in_flight))
        if condition is not None:
            raise self._refuse(segment, condition)
        self.plan.services.flow.turns.begin()
        return segment.begin(), segment.nursery

    def _refuse(self, segment: SegmentRun, condition: str) -> TurnRefused:
        segment.gate.refuse(condition)
        segment.start_drain()
        first = self.trace.stop_condition
        return TurnRefused(f"rollout stopped: {first}", condition=first)

    @protected
    async def _turn(self, call: Call, request: Request, deliver: Deliver | None) -> None:
        """The life of a call, in a task of the segment's nursery."""
        segment = call.segment
        hook_failures: tuple[ErrorRecord, ...] = ()
        try:
            with call.scope:
                call.response = await self._answer(call, request, deliver)
        except (TurnRefused, ProviderError) as told:
            call.fail(told)
        except HookFailed as hook:
            call.fail(hook.errors[0])
            hook_failures = tuple(map(record, hook.errors))
        except trio.Cancelled:
            return  # its segment is over, as who waits for it finds; raised, it would only be collected by the nursery
        finally:
            segment.leave(call)
            call.done.set()
            self.plan.services.flow.turns.end()
        if hook_failures:  # after the answer, in the same step: who waits for it is told before it is struck
            self._hook_failed(segment, hook_failures)

    async def _answer(self, call: Call, request: Request, deliver: Deliver | None) -> Response:
        hooks = self.plan.hooks
        await self._ask(call, hooks.trace_stops, {})
        placement = self.trace.place(request.messages)
        if placement.messages is not request.messages:
            request = evolve(request, messages=placement.messages)
        if hooks.request_interceptors:
            request = await self._intercept_request(request, placement.known)
        if hooks.request_stops:
            try:
                await self._ask(call, hooks.request_stops, {"request": bodiless(request)})
            except TurnRefused:
                self._commit(request, None, placement)
                raise
        held = bool(hooks.response_interceptors or hooks.response_stops)
        response, modelled = await self._call_model(call, request, None if held else deliver)
        fired: str | None = None
        if held:
            try:
                response = await self._intercept_response(response)
                fired = await self._fired(call, hooks.response_stops, {"response": bodiless(response)})
                await trio.lowlevel.checkpoint_if_cancelled()  # what was cut off in its hooks commits nothing
            except BaseException:
                self.trace.record_call(modelled())
                raise
        self.trace.record_call(modelled(node=self._commit(request, response, placement)))
        call.segment.model_failures = ()
        if fired is not None:
            call.segment.leave(call)
            raise self._refuse(call.segment, fired)
        return response

    async def _ask(self, call: Call, stops: Sequence[BoundHook], crossing: Mapping[str, object]) -> None:
        """Ask stops in order; the first that fires refuses the turn (L32, L34)."""
        fired = await self._fired(call, stops, crossing) if stops else None
        if fired is not None:
            call.segment.leave(call)
            raise self._refuse(call.segment, fired)

    async def _fired(self, call: Call, stops: Sequence[BoundHook], crossing: Mapping[str, object]) -> str | None:
        """The name of the first stop that fires. While the exchange is being stopped, none is asked (L17)."""
        for stop in stops:
            if not call.segment.gate.asks_stops:
                return None
            verdict = await self._call_hook(stop, crossing)
            if not isinstance(verdict, bool):
                kind = type(verdict).__name__
                raise HookFailed(
                    [TaskError(f"{stop.said} returned a value of type {kind}; a stop returns True or False")]
                )
            if verdict and call.segment.gate.asks_stops:
                return stop.name
        return None

    async def _call_model(
        self, call: Call, request: Request, deliver: Deliver | None
    ) -> "tuple[Response, partial[ModelCall]]":
        """Call the model. Returns its answer, and what makes the record of the call once it is known what came of
        it."""
        plan, segment = self.plan, call.segment
        request, sampling, policy = asked_of(request, plan.sampling, restricted=self.restricted)
        started = trio.current_time()
        with self._waiting("provider", "a model call"):
            if deliver is None:
                got = await attempt(foreign.call, plan.model.respond, request, sampling)
            else:
                got = await attempt(foreign.call, plan.model.stream_response, request, sampling, Delivery(deliver))
        ended = trio.current_time()
        self.model_time += ended - started
        fault = fault_of_answer(got.value) if got.error is None else None
        answer = got.value if fault is None else None  # nothing, too, where it raised
        modelled = partial(
            ModelCall,
            model=plan.model_name,
            sampling=sampling,
            time=Span(start=self.clock.at(started), end=self.clock.at(ended)),
            policy=policy,
            finish_reason=None if answer is None else answer.finish_reason,
            usage=None if answer is None else answer.usage,
        )
        failures: list[ProviderError] = []
        try:
            pass_on(got.error)
            try:
                if got.error is None:  # given up: whatever came out, it is no answer, and no failure
                    await trio.lowlevel.checkpoint_if_cancelled()
                else:
                    await meet_cancellation()
            except BaseException:
                if answer is not None:
                    self.trace.record_call(modelled())  # its tokens were spent all the same (L81)
                raise
            if answer is None:
                failures = self._model_failures(got.error, fault)
            elif answer.usage is None and plan.limits.cap_tokens:
                failures = self._uncounted()
            if answer is not None and not failures:
                call.answered = True
                return answer, modelled
            self.trace.record_call(modelled(error=record(failures[0])))
            if isinstance(failures[0], OverlongPromptError):
                segment.leave(call)
                raise self._refuse(segment, "context_length")
            segment.model_failures = tuple(map(record, failures))
            raise failures[0]
        finally:
            del got, failures  # a frame that keeps an exception which it raises is kept by it

    def _model_failures(self, error: BaseException | None, fault: str | None) -> list[ProviderError]:
        """What is wrong with a call of the model that raised, or whose answer has a fault, attributed to it (L40)."""
        doing = f"the call of model {self.plan.model_name!r}"
        if error is None:
            return [ProviderError(f"{doing} {fault}")]
        return [of_the_model(leaf, doing) for leaf in failed(error, ProviderError, doing)]

    def _uncounted(self) -> list[ProviderError]:
        """What is wrong with an answer whose tokens are unknown where they are capped; empty if it is used all the
        same, which is said once."""
        said = f"the call of model {self.plan.model_name!r} reported no usage"
        if self.plan.policy.unknown_usage == "fail":
            return [ProviderError(f"{said}, so the token caps cannot be enforced (policy unknown_usage = fail)")]
        if not self._usage_unknown:
            self._usage_unknown = True
            message = f"{said}: the token caps do not hold for such replies"
            self.trace.warn(TraceWarning(kind="unknown_usage", message=message))
        return []

    def _commit(self, request: Request, response: Response | None, placement: Placement) -> int | None:
        shown, came, known = request.messages, placement.messages, placement.known
        originals: dict[int, Message] = {}
        if shown is not came:
            originals = {at: came[at] for at in range(known, len(came)) if came[at] is not shown[at]}
        node = self.trace.commit(shown, response, originals=originals, placement=placement, time=self.clock.now())
        if request.tools:
            self.trace.tools[:] = request.tools
        if self._intercepted:
            self._intercepted -= Counter(message.key for message in shown[known:] if rewritable(message))
        return node

    # ---- hooks

    async def _intercept_request(self, request: Request, known: int) -> Request:
        """Pass a request through the interceptors, unless all that is new in it has passed them before (L6, L33)."""
        new = {at for at in range(known, len(request.messages)) if rewritable(request.messages[at])}
        settled, left = set(), Counter(self._intercepted or ())
        for at in sorted(new):
            key = request.messages[at].key
            if left[key] > 0:
                left[key] -= 1
                settled.add(at)
        if new and new == settled:
            return request
        return await self._rewrite_request(request, candidates=new - settled, settled=settled)

    async def _rewrite_request(self, request: Request, *, candidates: set[int], settled: set[int]) -> Request:
        rewrites: list[Rewrite] = []
        for interceptor in self.plan.hooks.request_interceptors:
            with blaming(interceptor):
                copy = private_request(request)
            given = await self._call_hook(interceptor, {"request": copy})
            with blaming(interceptor):
                rewritten = rewritten_request(request, given, interceptor.said, candidates=candidates, settled=settled)
            if rewritten is not request:
                request = rewritten
                rewrites.append(Rewrite(interceptor.name))
        self.trace.request_rewrites.extend(rewrites)
        return request

    async def _intercept_response(self, response: Response) -> Response:
        rewrites: list[Rewrite] = []
        for interceptor in self.plan.hooks.response_interceptors:
            with blaming(interceptor):
                copy = private_response(response)
            given = await self._call_hook(interceptor, {"response": copy})
            with blaming(interceptor):
                rewritten = rewritten_response(response, given, interceptor.said)
            if rewritten is not response:
                response = rewritten
                rewrites.append(Rewrite(interceptor.name))
        self.trace.response_rewrites.extend(rewrites)
        return response

    async def _call_hook(self, hook: BoundHook, crossing: Mapping[str, object]) -> object:
        """Call a stop or an interceptor, bounded by `timeouts.hook` (L35, L37)."""
        bound, overdue = self.plan.bounds.hook, self.plan.services.overdue
        given = {"task": self.plan.task, "trace": self.trace, "runtime": self.runtime, **crossing}
        with self._waiting("task", hook.said):
            ran = await overdue.attempt(
                partial(hook, given), bound, rollout=self.trace.id, doing=hook.doing, pausable=True
            )
        called = ran.came
        try:
            pass_on(called.error)
            await trio.lowlevel.checkpoint_if_cancelled()
            if not ran.in_time:
                late = f"{hook.said} timed out after {ran.elapsed:g} s (timeouts.hook = {bound:g} s)"
                raise HookFailed([TaskError(late)])
            if called.error is None:
                return called.value
            leaves = failed(called.error, TaskError, hook.said)
            raise HookFailed([attribute(leaf, TaskError, hook.said) for leaf in leaves])
        finally:
            del called, ran  # a frame that keeps an exception which it raises is kept by it

    def _hook_failed(self, segment: SegmentRun, failures: tuple[ErrorRecord, ...]) -> None:
        """A failing hook interrupts the segment and fails the rollout; while it is being stopped it is a warning."""
        if segment.gate.asks_stops:
            segment.hook_failed(failures)
        else:
            said = (f"{failure.type}: {failure.message}" for failure in failures)
            self.trace.warn(*(TraceWarning(kind="after_stop", message=message) for message in said))

    def _shown(self) -> tuple[Message, ...]:
        """The conversation that the user's words join: shown to interceptors, not theirs to change (L6)."""
        branches = self.trace.branches
        if branches:
            return tuple(node.message for node in branches[-1])
        system = self.plan.task.system_prompt
        return (*(() if system is None else (SystemMessage(system),)), *self._opening)


@define(eq=False)
class _Wait:
    """A block in which a turn waits for somebody."""

    session: Session
    wait: tuple[Party, str]

    def __enter__(self) -> None:
        self.session.waits = (*self.session.waits, self.wait)
        self.session.changed()

    def __exit__(self, *_: object) -> None:
        left = [*self.session.waits]
        left.remove(self.wait)
        self.session.waits = tuple(left)
        self.session.changed()

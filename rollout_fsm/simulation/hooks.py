"""Scripted stops and interceptors, as methods that a task can bear."""

from collections.abc import Awaitable, Callable

from attrs import evolve

from rollout_fsm.hooks import intercept, stop
from rollout_fsm.messages import AssistantMessage, Request, Response, UserMessage
from rollout_fsm.simulation.scenario import Intercept, Scenario, Stop
from rollout_fsm.simulation.signals import Method
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.trace import Trace


def stops(scenario: Scenario, stage: Stage) -> dict[str, Method]:
    """The stops, by name."""
    return {script.name: stop(priority=script.priority)(_stop(script, stage)) for script in scenario.stops}


def interceptors(scenario: Scenario, stage: Stage) -> dict[str, Method]:
    """The interceptors, by name."""
    made: dict[str, Method] = {}
    for script in scenario.intercepts:
        method = (
            _request_interceptor(script, stage)
            if script.boundary == "request"
            else _response_interceptor(script, stage)
        )
        made[script.name] = intercept(priority=script.priority)(method)
    return made


def _stop(script: Stop, stage: Stage) -> Callable[..., Awaitable[object]]:
    async def verdict(turn: int) -> object:
        if turn < script.fire_at_turn:
            return False
        with stage.timeline.on_stage(script.name):
            await stage.timeline.spend(script.delay)
            if script.raises is not None:
                raise script.raises.make()
            return script.returns

    async def before_a_turn(self: object, trace: Trace) -> object:
        return await verdict(trace.num_turns)

    async def on_the_request(self: object, request: Request, trace: Trace) -> object:
        return await verdict(trace.num_turns + 1)

    async def on_the_response(self: object, response: Response, trace: Trace) -> object:
        return await verdict(trace.num_turns + 1)

    match script.boundary:
        case "trace":
            return before_a_turn
        case "request":
            return on_the_request
        case "response":
            return on_the_response


def _request_interceptor(script: Intercept, stage: Stage) -> Callable[..., Awaitable[object]]:
    async def act(self: object, request: Request) -> Request | None:
        if not await _acts(script, stage):
            return None
        messages = list(request.messages)
        if script.action == "add_message":
            return evolve(request, messages=[*messages, UserMessage(script.text)])
        said = [place for place, message in enumerate(messages) if isinstance(message, UserMessage)]
        if script.action == "observe" or not said:
            return None
        messages[said[0 if script.action == "rewrite_history" else -1]] = UserMessage(script.text)
        return evolve(request, messages=messages)

    return act


def _response_interceptor(script: Intercept, stage: Stage) -> Callable[..., Awaitable[object]]:
    async def act(self: object, response: Response) -> Response | None:
        if not await _acts(script, stage) or script.action == "observe" or response.message.text == script.text:
            return None
        return evolve(response, message=AssistantMessage(script.text))

    return act


async def _acts(script: Intercept, stage: Stage) -> bool:
    """Whether the interceptor acts on this turn; raises instead, if that is its action."""
    if stage.next_turn != script.at_turn:
        return False
    with stage.timeline.on_stage(script.name):
        await stage.timeline.spend(script.delay)
        if script.action == "raise":
            raise script.raises.make()
    return True

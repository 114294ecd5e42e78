"""How many tokens a prompt has, where a harness asks: no turn, so no limit, stop or hook is asked."""

import trio

from rollout_fsm import foreign
from rollout_fsm.attempt import attempt
from rollout_fsm.errors import ProviderError
from rollout_fsm.messages import Request
from rollout_fsm.outcome import failed, pass_on
from rollout_fsm.plan import Plan
from rollout_fsm.turn_failures import of_the_model


async def count_tokens(plan: Plan, request: Request) -> int:
    """By the model's own count where it has one; else a quarter of the characters. Raises `ProviderError`."""
    doing = f"counting tokens with model {plan.model_name!r}"
    got = await attempt(foreign.call, plan.model.count_tokens, request)
    try:
        pass_on(got.error)
        await trio.lowlevel.checkpoint_if_cancelled()
        if got.error is not None:
            raise of_the_model(failed(got.error, ProviderError, doing)[0], doing)
        if got.value is not None and (type(got.value) is not int or got.value < 0):
            kind = type(got.value).__name__
            raise ProviderError(f"{doing} came to {kind}; it is a whole number from 0 on, or None")
        return _estimate(request) if got.value is None else got.value
    finally:
        del got  # a frame that keeps an exception which it raises is kept by it


def _estimate(request: Request) -> int:
    """About how many tokens a prompt has: a quarter of its characters."""
    said = sum(len(message.text) for message in request.messages)
    offered = sum(len(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.tools)
    return -(-(said + offered) // 4)

"""Token counts as chat endpoints report them, in OpenAI's spelling and in those of others."""

from collections.abc import Mapping

from rollout_fsm.gateway.dialects.fields import count, detail, price
from rollout_fsm.messages import JSON, Usage


def parse_usage(value: JSON) -> Usage | None:
    """The counts; None where there are none or only half of them (L15)."""
    if not isinstance(value, dict):
        return None
    prompt, completion = count(value.get("prompt_tokens")), count(value.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    cached = _cached(value)
    reasoning = count(detail(value, "completion_tokens_details", "reasoning_tokens"))
    return Usage(
        prompt_tokens=prompt - cached if cached is not None and cached <= prompt else prompt,
        completion_tokens=completion + _beside(value, prompt, completion, reasoning),
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
        cost=price(value.get("cost")),
    )


def _cached(usage: Mapping[str, JSON]) -> int | None:
    """Cache reads: OpenAI's name, DeepSeek's and Moonshot's."""
    named = (
        detail(usage, "prompt_tokens_details", "cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
    )
    return next((known for value in named if (known := count(value)) is not None), None)


def _beside(usage: Mapping[str, JSON], prompt: int, completion: int, reasoning: int | None) -> int:
    """The reasoning tokens where a provider counts them beside the completion, as xAI does: its total says so."""
    if not reasoning:
        return 0
    return reasoning if usage.get("total_tokens") == prompt + completion + reasoning else 0


def render_usage(usage: Usage) -> dict[str, JSON]:
    """The counts in OpenAI's spelling, where the prompt includes cache reads."""
    body: dict[str, JSON] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_input_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.cost is not None:
        body["cost"] = usage.cost
    return body

"""What of a request a provider is not asked where the agent's network is restricted: to reach the network in its place.

The request's own wishes and the run's settings are held to it alike.
"""

from attrs import evolve

from rollout_fsm.messages import Request, Sampling
from rollout_fsm.trace import PolicyEvent

REMOVED = "provider_capability_unavailable"
"""The code of what a network policy does to a request."""


def asked_of(request: Request, run: Sampling, *, restricted: bool) -> tuple[Request, Sampling, PolicyEvent | None]:
    """The request and the sampling that a model is asked with, `run` being the run's settings; and what was taken
    out."""
    if not restricted:
        return request, run.over(request.sampling), None
    from rollout_fsm.gateway.dialects.external import without_external  # all of a gateway, which few rollouts need

    request, of_the_request = without_external(request)
    settings = evolve(request, native=None, sampling=run.over(request.sampling))
    settings, of_the_run = without_external(settings)
    removed = tuple(dict.fromkeys((*of_the_request, *of_the_run)))
    return request, settings.sampling, PolicyEvent(code=REMOVED, paths=removed) if removed else None

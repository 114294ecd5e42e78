"""The HTTP interception server: harness programs post model calls to it as to any OpenAI-compatible endpoint."""

from rollout_fsm.gateway.server import Gateway, open_gateway
from rollout_fsm.gateway.slots import Interceptable, Slot
from rollout_fsm.gateway.status import status_of

__all__ = ["Gateway", "Interceptable", "Slot", "open_gateway", "status_of"]

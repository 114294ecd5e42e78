"""Which HTTP status a failed model call is answered with.

Clients decide by it whether to try again: the official SDKs repeat 408, 409, 429 and everything from 500 on. So a
refusal is a plain 400, never a 409, and a provider's own status is passed on.
"""

import trio

from rollout_fsm.errors import OverlongPromptError, ProviderError, TurnRefused, leaves
from rollout_fsm.gateway.dialects.dialect import DialectError

BAD_REQUEST = 400
BAD_GATEWAY = 502


def status_of(error: BaseException) -> int:
    """The status for what `respond` raised: 400 for a refused turn or a malformed request, a provider's own, else 502.

    A group is answered as its first leaf that is no cancellation (L40).
    """
    match primary(error):
        case TurnRefused() | DialectError():
            return BAD_REQUEST
        case ProviderError(status_code=int(status)) if 400 <= status <= 599:
            return status
        case OverlongPromptError():
            return BAD_REQUEST
    return BAD_GATEWAY


def primary(error: BaseException) -> BaseException:
    """The failure that is answered for: of a group the first leaf that is no cancellation."""
    return next((leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)), error)

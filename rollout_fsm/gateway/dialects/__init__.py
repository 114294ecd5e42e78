"""The languages that agents and endpoints speak, each to and from the one model of `messages`. No I/O."""

from collections.abc import Mapping

from rollout_fsm.gateway.dialects.chat import CHAT
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.gateway.dialects.messages import MESSAGES
from rollout_fsm.gateway.dialects.responses import RESPONSES

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
"""By name."""

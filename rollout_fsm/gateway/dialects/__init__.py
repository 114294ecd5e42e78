"""The languages that agents and endpoints speak, each to and from the one model of `messages`. No I/O."""

from collections.abc import Mapping

from rollout_fsm.gateway.dialects.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {}
"""By name."""

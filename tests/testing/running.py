"""Running the tests of a contract's class without pytest, to see which of them fail."""

from collections.abc import Awaitable, Callable
from unittest import SkipTest

import trio
from trio.testing import MockClock

from rollout_fsm.testing.contract import Contract
from rollout_fsm.testing.expecting import ContractError


def names(contract: type[Contract]) -> list[str]:
    """The tests of a contract."""
    return [name for name in dir(contract) if name.startswith("test_")]


def outcome(contract: type[Contract], name: str) -> ContractError | SkipTest | None:
    """What comes of one test; None where it passes."""
    tested = contract()
    tested.current = name  # type: ignore[attr-defined]
    try:
        getattr(tested, name)()
    except (ContractError, SkipTest) as raised:
        return raised.with_traceback(None)
    return None


def failures(contract: type[Contract]) -> dict[str, ContractError]:
    """The tests of a contract that fail, and what they say."""
    came = {name: outcome(contract, name) for name in names(contract)}
    return {name: error for name, error in came.items() if isinstance(error, ContractError)}


def said_in_full(error: ContractError) -> bool:
    """Whether a failure says what the contract asks, what came, and what to change."""
    labels = [line.partition(":")[0] for line in str(error).strip().splitlines()]
    return labels == ["the contract", "what came", "to change"]


def in_virtual_time(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test on a clock that jumps where all wait."""
    trio._core._run._r.seed(0)
    trio.run(main, clock=MockClock(autojump_threshold=0))

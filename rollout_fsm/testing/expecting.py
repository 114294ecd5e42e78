"""What a test says where an implementation breaks its contract: what is asked, what came, what to change."""

from collections.abc import Awaitable

from rollout_fsm.errors import text

__all__ = ["ContractError", "expect", "raised_by", "said"]


class ContractError(AssertionError):
    """A contract is broken. `came` is what was seen, and `change` what would mend it."""

    asks: str = ""
    """What the contract asks: the sentence of the test that found it."""

    def __init__(self, came: str, change: str) -> None:
        super().__init__(came, change)
        self.came = came
        self.change = change

    def __str__(self) -> str:
        lines = {"the contract": self.asks, "what came": self.came, "to change": self.change}
        return "".join(f"\n{label + ':':14}{said}" for label, said in lines.items() if said)


def expect(holds: object, came: str, change: str) -> None:
    """Raise a `ContractError` unless this holds."""
    __tracebackhide__ = True
    if not holds:
        raise ContractError(came, change)


async def raised_by(awaitable: Awaitable[object]) -> Exception | None:
    """What comes out of a call, but for a cancellation; None where it returns."""
    try:
        await awaitable
    except Exception as error:  # noqa: BLE001  (foreign code: whatever it is, it is what the test asks about)
        return error
    return None


def said(error: Exception | None) -> str:
    """What came out of a call, for a message."""
    return "returned" if error is None else f"raised {text(error)}"

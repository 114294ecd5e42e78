"""What goes wrong within a turn, from where it happens to where the segment learns of it (L35, L40)."""

from rollout_fsm.errors import ProviderError, RolloutError, TaskError, attribute, text
from rollout_fsm.hooks import BoundHook


class HookFailed(Exception):  # noqa: N818
    """Carries a hook's failure, leaf by leaf, from where it happened to where the segment learns of it."""

    def __init__(self, errors: list[RolloutError]) -> None:
        super().__init__(text(errors[0]))
        self.errors = errors


class blaming:  # noqa: N801  (read as a word: with blaming(hook))
    """What goes wrong inside is the hook's failure: it returned something whose own code raises."""

    def __init__(self, hook: BoundHook) -> None:
        self.hook = hook

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            raise HookFailed([attribute(error, TaskError, self.hook.said)]) from None


def carried(error: BaseException | None) -> BaseException:
    """What is to be raised of what a hook's call came to: its own failure, or its leaves in a group."""
    if not isinstance(error, HookFailed):
        return error or TypeError("an interception came to nothing")
    errors = error.errors
    return errors[0] if len(errors) == 1 else ExceptionGroup(text(errors[0]), errors)


def of_the_model(error: BaseException, doing: str) -> ProviderError:
    """A failure of a model's call; what its code typed as somebody else's is still the call that failed (L20)."""
    attributed = attribute(error, ProviderError, doing)
    if isinstance(attributed, ProviderError):
        return attributed
    failure = ProviderError(f"{doing} failed: {text(attributed)}")
    failure.__cause__ = attributed
    return failure

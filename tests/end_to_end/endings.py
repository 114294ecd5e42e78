"""How a rollout ended, as a test can write it down."""

from attrs import frozen

from rollout_fsm import Trace, check_trace


@frozen
class Ending:
    """Outcome, stop condition, the errors' types and status codes, the warnings' kinds."""

    ok: bool
    stop: str | None
    errors: tuple[tuple[str, int | None], ...] = ()
    warnings: tuple[str, ...] = ()


def ending(trace: Trace) -> Ending:
    """How a finished rollout ended; the trace is one that the declared machine can have lived."""
    assert check_trace(trace) == []
    assert trace.is_completed
    return Ending(
        trace.ok,
        trace.stop_condition,
        tuple((error.type, error.status_code) for error in trace.errors),
        tuple(warning.kind for warning in trace.warnings),
    )


def failed(kind: str, status: int | None = None) -> Ending:
    """A failure of one boundary and nothing else."""
    return Ending(False, "error", ((kind, status),))


def failed_late(kind: str) -> Ending:
    """A failure after an exchange that was over: its stop condition stands (L17)."""
    return Ending(False, "agent_completed", ((kind, None),))


COMPLETED = Ending(True, "agent_completed")
ABORTED = Ending(False, "cancelled")

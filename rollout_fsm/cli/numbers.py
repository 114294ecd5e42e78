"""Numbers as a person reads them. One that was not measured is never shown as a zero."""

__all__ = ["MISSING", "clock", "number", "seconds"]

MISSING = "–"

_TINY, _LARGE, _HUGE = 0.001, 10_000, 1e15


def number(value: float | None) -> str:
    """A score: three digits behind the point, a whole number without; the very small and the large in their own way."""
    if value is None:
        return MISSING
    size = abs(value)
    if size >= _HUGE or 0 < size < _TINY:
        return f"{value:.2e}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if size >= _LARGE else f"{value:.3f}"


def seconds(value: float | None) -> str:
    """A stretch of time: milliseconds, seconds, or minutes and seconds."""
    if value is None:
        return MISSING
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else clock(value)


def clock(value: float) -> str:
    """A stretch of time as 0:07, 12:34 or 1:02:03."""
    minutes, secs = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"

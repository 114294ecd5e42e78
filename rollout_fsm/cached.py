"""Cached properties of records with slots: whether one was made, without making it."""


def is_cached(record: object, name: str) -> bool:
    """Whether the cached property of this name was made already."""
    try:
        object.__getattribute__(record, name)  # past the record's own `__getattr__`, which makes it
    except AttributeError:
        return False
    return True

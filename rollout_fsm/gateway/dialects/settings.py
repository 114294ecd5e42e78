"""How a dialect spells the settings of `Sampling`: read from a body, written into one, changed in one.

A body that passes through keeps its own spelling of each setting that was not changed. What a dialect has no named
setting for travels in `Sampling.extra`, under the dialect's own name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from rollout_fsm.gateway.dialects.fields import as_list, as_string, wrong
from rollout_fsm.messages import JSON, Sampling

Path = tuple[str, ...]


@frozen
class Setting:
    """A setting of `Sampling`, and where bodies say it: the first path that is there counts, the first is written."""

    name: str
    read: Callable[[JSON, str], object]
    paths: tuple[Path, ...]


@frozen(kw_only=True)
class Spelling:
    """The settings of a dialect; `named`: the fields of a body that are no settings; `written`: where a setting is
    written, if that is not where it is read first."""

    settings: tuple[Setting, ...]
    named: frozenset[str]
    written: Mapping[str, Path] = field(factory=dict)

    def read(self, body: Mapping[str, JSON]) -> Sampling:
        """The settings of a body. Raises `DialectError`."""
        said = {setting.name: _read(body, setting) for setting in self.settings}
        return Sampling(**said, extra=self._extra(body))

    def write(self, sampling: Sampling) -> dict[str, JSON]:
        """The settings that are said, `extra` as it is."""
        body = dict(sampling.extra)
        for setting in self.settings:
            self._write(body, setting, getattr(sampling, setting.name))
        return body

    def change(self, body: Mapping[str, JSON], before: Sampling, after: Sampling) -> dict[str, JSON]:
        """The body with the settings that are others `after` than they were `before`."""
        changed = dict(body)
        if before == after:
            return changed
        for name in {**before.extra, **after.extra}:
            if name not in after.extra:
                self._put(changed, name, {})
            elif name not in before.extra or before.extra[name] != after.extra[name]:
                self._put(changed, name, {name: after.extra[name]})
        for setting in self.settings:
            if getattr(before, setting.name) != getattr(after, setting.name):
                for path in setting.paths:
                    _remove(changed, path)
                self._write(changed, setting, getattr(after, setting.name))
        return changed

    def _put(self, body: dict[str, JSON], name: str, said: Mapping[str, JSON]) -> None:
        """Put what is said of an extra in its place in the body, but for the settings of others that are inside it."""
        had, value = body.pop(name, None), said.get(name)
        inner = [path[1] for setting in self.settings for path in setting.paths if path[0] == name and len(path) > 1]
        kept = {key: had[key] for key in inner if key in had} if isinstance(had, dict) else {}
        if kept:
            body[name] = {**kept, **(value if isinstance(value, dict) else {})}
        elif said:
            body[name] = value

    def _write(self, body: dict[str, JSON], setting: Setting, value: Any) -> None:
        if value is None:
            return
        said = list(value) if isinstance(value, tuple) else value
        match self.written.get(setting.name, setting.paths[0]):
            case (name,):
                body[name] = said
            case (outer, name):
                had = body.get(outer)
                body[outer] = {**(had if isinstance(had, dict) else {}), name: said}

    def _extra(self, body: Mapping[str, JSON]) -> dict[str, JSON]:
        extra = {name: value for name, value in body.items() if name not in self.named}
        for setting in self.settings:
            for path in setting.paths:
                _remove(extra, path)
        return extra


def _read(body: Mapping[str, JSON], setting: Setting) -> Any:
    for path in setting.paths:
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            return setting.read(value, ".".join(path))
    return None


def _remove(body: dict[str, JSON], path: Path) -> None:
    """Take a field out, and the object that it was in if it was alone there."""
    match path:
        case (name,):
            body.pop(name, None)
        case (outer, name):
            had = body.get(outer)
            if isinstance(had, dict) and name in had:
                rest = {inner: value for inner, value in had.items() if inner != name}
                if rest:
                    body[outer] = rest
                else:
                    del body[outer]


def number(value: JSON, where: str) -> float:
    """A number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise wrong(where, value, "a number")


def integer(value: JSON, where: str) -> int:
    """A whole number; some languages write it with a point."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise wrong(where, value, "a whole number")


def word(value: JSON, where: str) -> str:
    """A string."""
    return as_string(value, where)


def texts(value: JSON, where: str) -> tuple[str, ...]:
    """A string or several."""
    if isinstance(value, str):
        return (value,)
    items = as_list(value, where, "a string or a list of strings")
    return tuple(as_string(item, f"{where}[{place}]") for place, item in enumerate(items))

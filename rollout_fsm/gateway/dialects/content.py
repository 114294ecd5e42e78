"""Writing a message that was rewritten into the body that it came in, and images as the dialects have them."""

from collections.abc import Callable, Iterable, Sequence

from rollout_fsm.messages import JSON, Content, Message, Part, Request

Render = Callable[[Part], dict[str, JSON]]
BASE64 = ";base64,"


def rewritten(request: Request) -> Sequence[int] | None:
    """The positions of messages that are others than those of the native body; None where they do not correspond."""
    native = request.native
    if native is None or len(native.messages) != len(request.messages):
        return None
    pairs: Iterable[tuple[Message, Message]] = zip(request.messages, native.messages, strict=True)
    return [place for place, (now, was) in enumerate(pairs) if now is not was and now.key != was.key]


def rewritten_content(native: JSON, old: Content, new: Content, render: Render) -> JSON:
    """The new content in the place of the old one, which was read from `native`: a part that stayed is left as it is,
    one that was rewritten keeps its other fields."""
    parts = native if isinstance(native, list) else []
    if isinstance(new, str):
        texts = [part for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return [{**texts[-1], "text": new}] if texts else new
    had: list[Part | None] = list(old) if isinstance(old, tuple) and len(old) == len(parts) else []
    written: list[JSON] = []
    for place, part in enumerate(new):
        if part in had:
            found = place if had[place : place + 1] == [part] else had.index(part)
            had[found] = None  # each is there once
            written.append(parts[found])
            continue
        fields, beside = render(part), parts[place] if len(new) == len(had) else None
        same = isinstance(beside, dict) and beside.get("type") == fields["type"]
        written.append({**beside, **fields} if isinstance(beside, dict) and same else fields)
    return written


def data_url(media_type: str, data: str) -> str:
    """An image that came as its bytes, as a URL."""
    return f"data:{media_type}{BASE64}{data}"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of such a URL; None for another one."""
    if not url.startswith("data:"):
        return None
    head, mark, data = url[5:].partition(BASE64)
    return (head, data) if mark else None

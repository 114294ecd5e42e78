"""What messages and results of calls contain in OpenAI's Responses."""

import json
from collections.abc import Iterable, Mapping

from rollout_fsm.gateway.dialects.documents import part_for
from rollout_fsm.gateway.dialects.fields import MISSING, as_list, as_object, as_string, get_string
from rollout_fsm.messages import JSON, Content, ImagePart, OtherPart, Part, TextPart

NAME = "responses"

PARTS = "a string or a list of parts"


def read_content(value: JSON, where: str) -> Content:
    """What a user or the instructions say."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return tuple(_part(raw, f"{where}[{place}]") for place, raw in enumerate(as_list(value, where, PARTS)))


def _part(raw: JSON, where: str) -> Part:
    part = as_object(raw, where, "a part: an object with a `type`")
    match as_string(part.get("type", MISSING), f"{where}.type", "the kind of the part"):
        case "input_text" | "output_text" | "text":
            return TextPart(as_string(part.get("text", MISSING), f"{where}.text"))
        case "input_image" if part.get("image_url") is not None:
            url = as_string(part["image_url"], f"{where}.image_url", "a URL")
            return ImagePart(url, get_string(part, "detail", where))
    return OtherPart(part)


def render_content(content: Content) -> JSON:
    """The content as the API spells it."""
    return content if isinstance(content, str) else [render_part(part) for part in content]


def render_part(part: Part) -> dict[str, JSON]:
    """A part of what a user says."""
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
    return part_for(NAME, part)


def spoken(value: JSON, where: str) -> str:
    """What an assistant's message says: its parts are pieces of one text, a refusal is one of them."""
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for place, raw in enumerate(as_list(value, where, PARTS)):
        part = as_object(raw, f"{where}[{place}]", "a part: an object with a `type`")
        field = "refusal" if part.get("type") == "refusal" else "text"
        texts.append(as_string(part.get(field, MISSING), f"{where}[{place}].{field}"))
    return "".join(texts)


def read_output(value: JSON, where: str) -> Content:
    """The result of a call: text, parts, a screenshot; of any other shape it is read as JSON."""
    match value:
        case None | str():
            return value or ""
        case {"type": "computer_screenshot", "image_url": str(url)}:
            return (ImagePart(url),)
        case list() if _typed(value):
            return read_content(value, where)
    return json.dumps(value, ensure_ascii=False)


def _typed(items: Iterable[JSON]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in items)

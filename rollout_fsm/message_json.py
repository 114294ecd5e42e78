"""Messages in the form that traces and task rows have: OpenAI's roles and parts, with tool calls flat (L84).

It differs from what goes over the wire to a model in the tool calls alone (`name` and `arguments` beside `id`), and is
read in both spellings. A message of an embedder's own class is written as the one of these that it is, without what the
class adds. The wire formats live with the dialects. What a caller says is read here too: text, messages, or dicts in
this form.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from rollout_fsm.exact_json import exact_converter, is_a, plain, require, shown, structured
from rollout_fsm.machine.exact import Fault, suggestion
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    OtherPart,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

SaidOne: TypeAlias = str | Message | Mapping[str, JSON]
"""Something to be said: a text is a user's message, a dict is a message such as {"role": "user", "content": "hi"}."""
Said: TypeAlias = SaidOne | Iterable[SaidOne]
"""A prompt, or what a user says in a turn."""

_ROLES: dict[str, type[Message]] = {
    kind.role: kind for kind in (AssistantMessage, SystemMessage, ToolMessage, UserMessage)
}


def message_to_json(message: Message) -> dict[str, JSON]:
    """A message as traces have it. Raises `FormatError` for what JSON cannot carry."""
    made = plain(_CONVERTER.unstructure(message), "the message cannot be written as JSON")
    assert isinstance(made, dict)
    return made


def message_from_json(data: JSON) -> Message:
    """A message as traces have it, tool calls flat or under `function`. Raises `FormatError` with every fault."""
    message: Message = structured(_CONVERTER, data, Message, "the message cannot be read")  # type: ignore[arg-type]
    return message


def as_messages(given: Said) -> tuple[Message, ...]:
    """The messages of a prompt or of a user's turn.

    Raises `TypeError` for what is neither text nor a message, `FormatError` (a `ValueError`), with every fault, for a
    dict that is no message: a key that messages do not have is refused, for a misspelt one would be lost.
    """
    if isinstance(given, str | Mapping | AssistantMessage | SystemMessage | ToolMessage | UserMessage):
        return (_said(given, ""),)
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise _unsayable(given, "")
    return tuple(_said(item, f"[{place}]") for place, item in enumerate(given))


def _said(given: object, place: str) -> Message:
    if isinstance(given, str):
        return UserMessage(given)
    if isinstance(given, AssistantMessage | SystemMessage | ToolMessage | UserMessage):
        return given
    if not isinstance(given, Mapping):
        raise _unsayable(given, place)
    doing = f"messages{place} is no message" if place else "the dict is no message"
    message: Message = structured(_EXACT, plain(given, doing), Message, doing)  # type: ignore[arg-type]
    return message


def _unsayable(given: object, place: str) -> TypeError:
    where = f"messages{place}: " if place else ""
    also = "" if place else ", or a list of these"
    hint = "; decode them first" if isinstance(given, bytes | bytearray) else ""
    return TypeError(
        f'{where}expected text, a message, or a dict such as {{"role": "user", "content": "hi"}}{also}, not '
        f"{shown(given)}{hint}"
    )


def register_messages(converter: Converter) -> None:
    """Teach a converter the messages, to and from JSON: each of them when it first meets one."""
    converter.register_structure_hook_func(lambda type_: type_ == Content, _content(converter))
    converter.register_structure_hook_func(lambda type_: type_ == Part, _part(converter))
    converter.register_unstructure_hook(TextPart, lambda part: {"type": part.type, "text": part.text})
    converter.register_unstructure_hook(ImagePart, _image_to_json)
    converter.register_unstructure_hook(OtherPart, lambda part: part.data)
    converter.register_structure_hook_factory(is_a(ToolCall), _tool_call)
    converter.register_structure_hook_factory(is_a(*_ROLES.values()), _message_of_a_role)
    converter.register_structure_hook_factory(lambda type_: type_ == Message, _message)
    converter.register_unstructure_hook_factory(is_a(*_ROLES.values()), _to_json)


def _content(converter: Converter) -> Callable[[object, object], Content]:
    def structure_content(value: object, _: object) -> Content:
        if isinstance(value, str):
            return value
        require(value, list, "a string or an array of parts")
        parts: tuple[Part, ...] = converter.structure(value, tuple[Part, ...])
        return parts

    return structure_content


def _part(converter: Converter) -> Callable[[object, object], Part]:
    def only(data: dict[str, JSON], *known: str) -> None:
        beyond = [key for key, value in data.items() if key not in known and value is not None]
        if beyond and converter.forbid_extra_keys:
            raise Fault(f"unknown key {', '.join(map(repr, beyond))}{suggestion(beyond[0], known)}")

    def structure_part(value: object, _: object) -> Part:
        data: dict[str, JSON] = require(value, dict)
        match require(data.get("type"), str, "a string as `type`"):
            case "text":
                only(data, "type", "text")
                return TextPart(require(data.get("text"), str, "a string as `text`"))
            case "image_url":
                only(data, "type", "image_url")
                image = data.get("image_url")
                if isinstance(image, str):
                    return ImagePart(image)
                inner: dict[str, JSON] = require(image, dict, "an object as `image_url`")
                only(inner, "url", "detail")
                detail = inner.get("detail")
                return ImagePart(
                    require(inner.get("url"), str, "a string as `image_url.url`"),
                    None if detail is None else require(detail, str, "a string as `image_url.detail`"),
                )
        return OtherPart(data)

    return structure_part


def _image_to_json(part: ImagePart) -> dict[str, object]:
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": part.type, "image_url": {"url": part.url, **detail}}


def _tool_call(kind: type[ToolCall], converter: Converter) -> Callable[[object, object], ToolCall]:
    inner = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=converter.forbid_extra_keys)

    def structure_tool_call(value: object, type_: Any) -> ToolCall:
        data: dict[str, JSON] = require(value, dict)
        nested = data.get("function")
        if isinstance(nested, dict):
            data = {**{key: item for key, item in data.items() if key != "function"}, **nested}
        return inner(data, type_)

    return structure_tool_call


def _message(_: object, converter: Converter) -> Callable[[object, object], Message]:
    readers = {role: _message_of_a_role(kind, converter) for role, kind in _ROLES.items()}

    def structure_message(value: object, _: object) -> Message:
        data: dict[str, JSON] = require(value, dict)
        role = data.get("role")
        if not isinstance(role, str) or role not in readers:
            raise Fault(f"expected a message whose role is {', '.join(_ROLES)}, not {shown(role)}")
        return readers[role](data, _ROLES[role])

    return structure_message


def _message_of_a_role(kind: type[Message], converter: Converter) -> Callable[[object, object], Message]:
    inner = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=converter.forbid_extra_keys)
    expected = _known(kind).role

    def structure_message(value: object, type_: Any) -> Message:
        data: dict[str, JSON] = require(value, dict)
        if (role := data.get("role")) != expected:
            raise Fault(f"expected a message whose role is {expected}, not {shown(role)}")
        return inner({key: item for key, item in data.items() if key != "role" and item is not None}, type_)

    return structure_message


def _to_json(kind: type[Message], converter: Converter) -> Callable[[Message], dict[str, object]]:
    known = _known(kind)
    fields = make_dict_unstructure_fn(known, converter)

    def unstructure_message(message: Message) -> dict[str, object]:
        said = {name: value for name, value in fields(message).items() if value is not None}
        made = {"role": known.role, **said}
        if known is AssistantMessage and not made["tool_calls"]:
            del made["tool_calls"]
        return made

    return unstructure_message


def _known(kind: type[Message]) -> type[Message]:
    """Which message a class is."""
    return next(known for known in _ROLES.values() if issubclass(kind, known))


_CONVERTER = exact_converter(forbid_extra_keys=False)
register_messages(_CONVERTER)
_EXACT = exact_converter(forbid_extra_keys=True)
register_messages(_EXACT)

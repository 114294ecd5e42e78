"""Requests of the chat format."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

from rollout_fsm.gateway.dialects import settings
from rollout_fsm.gateway.dialects.chat.messages import read_message, render_message, render_part, with_images_beside
from rollout_fsm.gateway.dialects.content import rewritten, rewritten_content
from rollout_fsm.gateway.dialects.fields import (
    MISSING,
    as_list,
    as_object,
    as_string,
    get_flag,
    get_list,
    get_string,
    require_whole,
    wrong,
)
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.gateway.dialects.settings import Setting, Spelling
from rollout_fsm.gateway.dialects.translation import carried
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Message,
    Native,
    Request,
    Sampling,
    Tool,
)

NAME = "chat"
LimitField = Literal["max_tokens", "max_completion_tokens"]

_NAMED = frozenset({"model", "messages", "tools", "n", "stream", "stream_options", "functions", "function_call"})


@cache
def spelling(limit_field: LimitField) -> Spelling:
    """The settings; the token limit has two names, of which an endpoint may know only one."""
    limits = (("max_completion_tokens",), ("max_tokens",))
    return Spelling(
        named=_NAMED,
        settings=(
            Setting("temperature", settings.number, (("temperature",),)),
            Setting("top_p", settings.number, (("top_p",),)),
            Setting("max_tokens", settings.integer, limits),
            Setting("seed", settings.integer, (("seed",),)),
            Setting("stop", settings.texts, (("stop",),)),
            Setting("reasoning_effort", settings.word, (("reasoning_effort",),)),
        ),
        written={"max_tokens": (limit_field,)},
    )


def parse_request(body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
    """A request. Raises `DialectError`, also for `n` above 1 and for the legacy `functions`: neither can be carried."""
    require_whole(body, "the request body")
    if body.get("n") not in (None, 1):
        raise wrong("n", body["n"], "1: a rollout has one continuation for each request")
    for legacy, successor in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(legacy) is not None:
            raise wrong(legacy, body[legacy], f"`{successor}` instead of the legacy `{legacy}`")
    given = as_list(body.get("messages", MISSING), "messages", "a list with at least one message")
    if not given:
        raise wrong("messages", given, "a list with at least one message")
    messages = recall(given, lambda place: read_message(given[place], f"messages[{place}]"))
    tools = [_tool(raw, f"tools[{place}]") for place, raw in enumerate(get_list(body, "tools", "", "a list of tools"))]
    return Request(
        messages=messages,
        tools=tuple(tool for tool in tools if tool is not None),
        model=get_string(body, "model"),
        sampling=spelling("max_tokens").read(body),
        native=Native(dialect=NAME, body=body, messages=messages),
    )


def wants_stream(body: Mapping[str, JSON]) -> bool:
    """Whether the answer is wanted as a stream. Raises `DialectError`."""
    require_whole(body, "the request body")
    wants_usage(body)
    return bool(get_flag(body, "stream"))


def wants_usage(body: Mapping[str, JSON]) -> bool:
    """Whether a stream is to have a last chunk with the usage. Raises `DialectError`."""
    options = body.get("stream_options")
    if options is None:
        return False
    return bool(get_flag(as_object(options, "stream_options", "an object"), "include_usage", "stream_options"))


def render_request(
    request: Request, *, model: str, sampling: Sampling, stream: bool, limit_field: LimitField
) -> dict[str, JSON]:
    """A request body; see `Dialect`."""
    native, spelled = request.native, spelling(limit_field)
    places = rewritten(request) if native is not None and native.dialect == NAME else None
    if native is not None and places is not None:
        body = spelled.change(native.body, request.sampling, sampling)
        if places:
            body["messages"] = _rewritten(native, request.messages, places)
    else:
        foreign = native is not None and native.dialect != NAME
        messages = with_images_beside(request.messages) if foreign else request.messages
        body = {"messages": [render_message(message) for message in messages]}
        if request.tools:
            body["tools"] = [render_tool(tool) for tool in request.tools]
        body.update(spelled.write(carried(request, sampling, NAME)))
    body["model"] = model
    if not stream:
        if body.get("stream"):
            del body["stream"]
        body.pop("stream_options", None)
        return body
    body["stream"] = True
    if "stream_options" not in sampling.extra:  # the run's own word stands
        options = body.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return body


def _rewritten(native: Native, messages: tuple[Message, ...], places: Sequence[int]) -> list[JSON]:
    written = list(as_list(native.body["messages"], "messages", "a list"))
    for place in places:
        raw = as_object(written[place], f"messages[{place}]", "a message")
        old, new = native.messages[place], messages[place]
        if isinstance(old, AssistantMessage) or isinstance(new, AssistantMessage):
            written[place] = {**raw, **render_message(new)}
        else:
            written[place] = {
                **raw,
                "content": rewritten_content(raw.get("content"), old.content, new.content, render_part),
            }
    return written


# Tools


def render_tool(tool: Tool) -> dict[str, JSON]:
    """A tool in its nested form."""
    inner: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        inner["description"] = tool.description
    if tool.format is not None:
        return {"type": "custom", "custom": {**inner, "format": _nested(tool.format)}}
    inner["parameters"] = dict(tool.parameters)
    if tool.strict is not None:
        inner["strict"] = tool.strict
    return {"type": "function", "function": inner}


def _nested(format: Mapping[str, JSON]) -> dict[str, JSON]:
    """The format of a custom tool as this API has it: a grammar stands in a field of its own."""
    if format.get("type") != "grammar" or "grammar" in format:
        return dict(format)
    return {"type": "grammar", "grammar": {name: value for name, value in format.items() if name != "type"}}


def _flat(format: Mapping[str, JSON]) -> dict[str, JSON]:
    grammar = format.get("grammar")
    return {"type": "grammar", **grammar} if isinstance(grammar, dict) else dict(format)


def _tool(raw: JSON, where: str) -> Tool | None:
    """A tool of the caller's; None for one of the provider's own, which only the native body has."""
    tool = as_object(raw, where, "a tool: an object with `type` and `function`")
    kind = as_string(tool.get("type", "function"), f"{where}.type", "the kind of the tool")
    if kind not in ("function", "custom"):
        return None
    inner = f"{where}.{kind}"
    fields = as_object(tool.get(kind, MISSING), inner, "an object with `name` and `parameters`")
    name = as_string(fields.get("name", MISSING), f"{inner}.name", "the tool's name")
    description = get_string(fields, "description", inner) or ""
    if kind == "custom":
        format = fields.get("format") or {"type": "text"}
        return Tool(name=name, description=description, format=_flat(as_object(format, f"{inner}.format", "an object")))
    parameters = fields.get("parameters")
    return Tool(
        name=name,
        description=description,
        parameters={} if parameters is None else as_object(parameters, f"{inner}.parameters", "a JSON schema"),
        strict=get_flag(fields, "strict", inner),
    )

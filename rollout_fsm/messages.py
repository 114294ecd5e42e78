"""What crosses the model boundary: messages, tools, a request, a response, its usage. Immutable, typed, on no wire.

A message's `key` is what identifies it in a conversation: two messages with one key are the same turn of it, however a
harness chose to spell them (L82). A key is compared, never written: its text is the message's own, and what is not
plain text is in it as a digest. Wire formats live with the dialects.
"""

import json
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from attrs import field, frozen

from rollout_fsm.arguments import canonical

JSON: TypeAlias = "str | int | float | bool | None | list[JSON] | dict[str, JSON]"
"""A value as JSON has it."""


def of_same_kinds(one: JSON, other: JSON) -> bool:
    """Whether values that are equal for Python are the same JSON: `1`, `1.0` and `true` are three things there."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return all(of_same_kinds(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(of_same_kinds, one, other))
    return not isinstance(one, float) or repr(one) == repr(other)


@frozen
class TextPart:
    """A piece of text in a message with several parts."""

    text: str
    type: ClassVar[str] = "text"


@frozen
class ImagePart:
    """An image, by URL or data URL."""

    url: str
    detail: str | None = None
    type: ClassVar[str] = "image_url"


@frozen
class OtherPart:
    """A part of a kind that the engine does not know; it passes through untouched."""

    data: Mapping[str, JSON]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OtherPart):
            return NotImplemented
        return self.data == other.data and of_same_kinds(dict(self.data), dict(other.data))

    @property
    def type(self) -> str:
        """The part's own word for its kind."""
        return str(self.data.get("type", ""))


Part: TypeAlias = TextPart | ImagePart | OtherPart
Content: TypeAlias = str | tuple[Part, ...]
"""Plain text, or parts in order."""


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _said(content: Content | None) -> Hashable:
    """What identifies a content: its text, or a digest where its parts say more than text."""
    if content is None or isinstance(content, str):
        return content or ""
    if all(isinstance(part, TextPart) for part in content):
        return _text(content)
    return _digest(
        part.text if isinstance(part, TextPart) else [part.url] if isinstance(part, ImagePart) else dict(part.data)
        for part in content
    )


def _digest(values: Iterable[JSON]) -> bytes:
    text = json.dumps([*values], sort_keys=True, separators=(",", ":"))  # ASCII: a lone surrogate is escaped
    return blake2b(text.encode(), digest_size=16).digest()


class Identified:
    """What has a place in a conversation. Its key is made once, when it is first asked for, and is no field of it."""

    __slots__ = ("_key",)
    _key: Hashable

    @property
    def key(self) -> Hashable:
        """What identifies the message in a conversation."""
        try:
            return self._key
        except AttributeError:
            object.__setattr__(self, "_key", self._identity())
            return self._key

    def _identity(self) -> Hashable:
        raise NotImplementedError


@frozen
class SystemMessage(Identified):
    """The instructions that open a conversation."""

    content: Content
    role: ClassVar[Literal["system"]] = "system"

    @property
    def text(self) -> str:
        """The text of the message, images left out."""
        return _text(self.content)

    def _identity(self) -> Hashable:
        return self.role, _said(self.content)


@frozen
class UserMessage(Identified):
    """What the user says: a person, another agent, an environment."""

    content: Content
    role: ClassVar[Literal["user"]] = "user"

    @property
    def text(self) -> str:
        """The text of the message, images left out."""
        return _text(self.content)

    def _identity(self) -> Hashable:
        return self.role, _said(self.content)


@frozen(kw_only=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the raw text as the model wrote it."""

    id: str
    name: str
    arguments: str
    type: Literal["function", "custom"] = "function"


def _calls(given: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(given)


@frozen
class AssistantMessage(Identified):
    """A reply of the model."""

    content: str | None = None
    reasoning_content: str | None = field(default=None, kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True, converter=_calls)
    provider_state: tuple[Mapping[str, JSON], ...] | None = field(default=None, kw_only=True)
    role: ClassVar[Literal["assistant"]] = "assistant"

    @property
    def text(self) -> str:
        """The text of the reply, empty if it has none."""
        return self.content or ""

    def _identity(self) -> Hashable:
        """Hidden reasoning is left out: harnesses need not send it back. The arguments of a call count as what they
        spell, for some APIs carry an object in the text's place."""
        if not self.tool_calls:
            return self.role, self.content or ""
        calls = _digest([call.id, call.name, canonical(call.arguments)] for call in self.tool_calls)
        return self.role, self.content or "", calls


@frozen
class ToolMessage(Identified):
    """The result of a tool call."""

    content: Content
    tool_call_id: str = field(kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    role: ClassVar[Literal["tool"]] = "tool"

    @property
    def text(self) -> str:
        """The text of the result, images left out."""
        return _text(self.content)

    def _identity(self) -> Hashable:
        return self.role, self.tool_call_id, _said(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@frozen(kw_only=True)
class Tool:
    """A tool that the model may call; `parameters` is a JSON schema.

    `format` makes it a custom tool, which takes free text: {"type": "text"}, or a grammar of what may be written.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, JSON] = field(factory=dict)
    strict: bool | None = None
    format: Mapping[str, JSON] | None = None


Setting = TypeVar("Setting")


def _object(given: Mapping[str, JSON]) -> dict[str, JSON]:
    return dict(given)


@frozen(kw_only=True)
class Sampling:
    """How the model is asked to sample; None = not said. `extra` holds further settings under the provider's own
    names."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, JSON] = field(factory=dict, converter=_object)

    def over(self, other: "Sampling") -> "Sampling":
        """These settings where they are said, the other's elsewhere."""
        return Sampling(
            temperature=_first(self.temperature, other.temperature),
            top_p=_first(self.top_p, other.top_p),
            max_tokens=_first(self.max_tokens, other.max_tokens),
            seed=_first(self.seed, other.seed),
            stop=_first(self.stop, other.stop),
            reasoning_effort=_first(self.reasoning_effort, other.reasoning_effort),
            extra={**other.extra, **self.extra},
        )


def _first(one: Setting | None, other: Setting | None) -> Setting | None:
    return other if one is None else one


@frozen(kw_only=True)
class Usage:
    """Tokens of one call or a sum of calls.

    `prompt_tokens` leaves cache reads out; reasoning tokens are part of the completion.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None

    @property
    def input_tokens(self) -> int:
        """Tokens fed in, cache reads included."""
        return self.prompt_tokens + (self.cached_input_tokens or 0)

    @property
    def total_tokens(self) -> int:
        """Length of the whole sequence, in tokens."""
        return self.input_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_input_tokens=_sum(self.cached_input_tokens, other.cached_input_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost=_sum(self.cost, other.cost),
        )


def _sum(one: Any, other: Any) -> Any:
    """The sum of what is known; None only if neither is."""
    return other if one is None else one if other is None else one + other


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


def _messages(given: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(given)


def _tools(given: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(given)


@frozen(kw_only=True, eq=False)
class Native:
    """A body as it was on the wire. Whoever speaks its dialect passes it on, so that nothing in it is lost."""

    dialect: str
    body: Mapping[str, JSON] = field(repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)
    """What a request's body was read as: a message that is another one now was rewritten since."""
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """Of a request, the headers that belong to its dialect, by lower-case name: which of its features it asks for."""


@frozen(kw_only=True)
class Request:
    """A conversation about to cross the model boundary."""

    messages: tuple[Message, ...] = field(converter=_messages)
    tools: tuple[Tool, ...] = field(default=(), converter=_tools)
    model: str | None = None
    sampling: Sampling = field(factory=Sampling)
    native: Native | None = field(default=None, eq=False, repr=False)
    """The request as the harness wrote it; None where it came from this process. Hooks do not see it."""


@frozen(kw_only=True)
class Tokens:
    """The token ids of one call, where the endpoint gives them: of the whole prompt, and of the completion."""

    prompt_ids: tuple[int, ...] = field(repr=False)
    completion_ids: tuple[int, ...] = field(repr=False)
    logprobs: tuple[float, ...] | None = field(default=None, repr=False)
    """One for each token of the completion."""


@frozen(kw_only=True)
class Response:
    """A model's answer. `usage` is None when the provider reported none: unknown is not zero (L15)."""

    message: AssistantMessage
    finish_reason: FinishReason | None = "stop"
    usage: Usage | None = None
    id: str = ""
    model: str | None = None
    tokens: Tokens | None = None
    native: Native | None = field(default=None, eq=False, repr=False)
    """The answer as the endpoint wrote it; None where it came from this process, or was rewritten."""


@frozen(kw_only=True)
class ToolCallDelta:
    """A piece of a tool call. `index` tells the calls of one reply apart; `id` and `name` come with the first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    type: Literal["function", "custom"] = "function"


@frozen(kw_only=True)
class NativeEvent:
    """An event of a stream as it was on the wire; `name` is its `event:` field, empty where there is none."""

    dialect: str
    data: Mapping[str, JSON]
    name: str = ""


@frozen(kw_only=True)
class Delta:
    """A piece of an answer that is still being made."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    native: NativeEvent | None = None
    """The event that said it, for whoever speaks its dialect; one that says nothing of the above comes, too."""


Deliver: TypeAlias = Callable[[Delta], Awaitable[None]]
"""Takes the pieces of an answer, in order, and returns when there is room for more."""


@frozen(eq=False)
class Delivery:
    """Takes the pieces of an answer for whoever waits for it: `await deliver(delta)`, in order."""

    _take: Deliver = field(repr=False)

    async def __call__(self, delta: Delta) -> None:
        """Take the next piece; returns when there is room for more."""
        await self._take(delta)

"""What a judge is shown: the conversation, the last reply, the task's fields.

What was written by those who are graded stands between two lines that bear a mark, which is in none of the texts: it
cannot be closed from the inside, nor can one message of a conversation imitate another, since a message's own lines are
indented. A text that is too long loses its middle, and says so.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

import attrs
from attrs import frozen

from rollout_fsm.errors import TaskError
from rollout_fsm.grading.template import TASK, Template
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import AssistantMessage, Content, ImagePart, Message, TextPart, ToolMessage
from rollout_fsm.trace import Trace

if TYPE_CHECKING:
    from rollout_fsm.task import Task

CONVERSATION = "conversation"
LAST_REPLY = "last_reply"
OF_THE_ROLLOUT = frozenset({CONVERSATION, LAST_REPLY})
"""The placeholders of which a prompt needs one: without, it would be about nothing."""

_TEXTS: Mapping[str, Callable[["Task", Trace], str]] = {
    CONVERSATION: lambda _, trace: "\n".join(_transcript(trace)),
    LAST_REPLY: lambda _, trace: trace.last_reply,
    "prompt": lambda task, _: "\n\n".join(_content(message.content) for message in task.opening),
    "system_prompt": lambda task, _: task.system_prompt or "",
}
BUILT_IN = tuple(_TEXTS)
"""The placeholders that every prompt may have, beside those of the task's fields."""

INDENT = "    "


@frozen
class Material:
    """What fills the placeholders of one question."""

    texts: Mapping[str, str]
    """Written by those who are graded; each is put between two lines that bear the mark."""
    words: Mapping[str, str]
    """The task's and the judge's own, put in as they are."""
    mark: str

    @classmethod
    def of(
        cls, template: Template, task: "Task", trace: Trace, *, words: Mapping[str, str], max_characters: int
    ) -> Self:
        """Whatever the template names. Raises `TaskError` for a field that the task does not have."""
        texts, said = {}, {}
        for name in sorted(template.names):
            if name in words:
                said[name] = cut(words[name], max_characters)
            elif name.startswith(TASK):
                said[name] = cut(task_field(task, name.removeprefix(TASK)), max_characters)
            else:
                text = _TEXTS[name](task, trace)
                texts[name] = cut(text, max_characters, INDENT if name == CONVERSATION else "")
        return cls(texts, said, _mark("\n".join((*texts.values(), *said.values()))))

    def value(self, name: str) -> str:
        """What is put in the place of a placeholder."""
        if name in self.words:
            return self.words[name]
        text = self.texts[name] or "(empty)"
        return f"<{name} {self.mark}>\n{text}\n</{name} {self.mark}>"


def task_field(task: "Task", name: str) -> str:
    """A field of a task, as text or JSON. Raises `TaskError` for one that the task does not have."""
    fields = [field.name for field in attrs.fields(type(task))]
    if name not in fields:
        near = suggestion(name, fields)
        raise TaskError(f"the judge is to see the task's field {name!r}, and {type(task).__name__} has none{near}")
    value = getattr(task, name)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def cut(text: str, most: int, indent: str = "") -> str:
    """The text, without its middle where it is longer than `most` characters. `indent` begins what is left after it."""
    if len(text) <= most:
        return text
    head, tail = text[: most - most // 2], text[len(text) - most // 2 :]
    return f"{head}\n[--- {len(text) - most} characters left out ---]\n{indent}{tail}"


def _transcript(trace: Trace) -> Iterator[str]:
    """The last conversation of a trace: who said what, hidden reasoning left out."""
    names: dict[str, str] = {}
    for node in trace.branches[-1] if trace.nodes else ():
        message = node.message
        calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
        if message.content or not calls:
            yield from _said(_speaker(message, names), _content(message.content))
        for call in calls:
            names[call.id] = call.name
            yield from _said(f"assistant calls {_one_line(call.name)}", call.arguments)


def _speaker(message: Message, names: Mapping[str, str]) -> str:
    if not isinstance(message, ToolMessage):
        return message.role
    name = message.name or names.get(message.tool_call_id)
    return f"result of {_one_line(name)}" if name else "result of a tool"


def _said(who: str, text: str) -> Iterator[str]:
    yield f"{who}:"
    for line in text.splitlines():
        yield f"{INDENT}{line}"


def _content(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part.text if isinstance(part, TextPart) else "[image]" if isinstance(part, ImagePart) else f"[{part.type}]"
        for part in content
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _mark(text: str) -> str:
    """A word that is not in the text, the same for the same text."""
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=6)
    while digest.hexdigest() in text:
        digest.update(b"again")
    return digest.hexdigest()

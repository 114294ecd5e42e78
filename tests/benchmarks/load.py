"""The load: agents that talk to an OpenAI-compatible server, in a process of their own.

    python tests/benchmarks/load.py

Reads what to do as JSON, one `Load` a line on standard input, and prints a line of JSON twice for each: `null` once all
agents are connected and warm, then, when it is told to go on by an empty line, what came of it. An agent has one
connection that is kept, and one conversation after the other on it; each begins with so many bytes of messages and
grows, turn by turn, by the reply and the next message of the user, all of it sent again. Imports the standard library
only, since both sides' interpreters run it.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

if __package__:
    from tests.benchmarks.upstream import TEXT
else:
    from upstream import TEXT  # type: ignore[import-not-found, no-redef]

MESSAGE = 1000
"""Bytes of each message that a conversation begins with."""
GOOD = b"HTTP/1.1 200"
MOST_FAILED = 100
"""After how many calls that failed an agent gives up."""


@dataclass(frozen=True)
class Load:
    """`secrets` has the keys of each agent's conversations, in order; the first one is for warming up."""

    port: int
    path: str
    secrets: list[list[str]]
    size: int
    turns: int
    streaming: bool


def bodies(load: Load) -> list[bytes]:
    """What is posted in each turn of a conversation."""
    words = "All work and no play makes Jack a dull boy. "
    each = min(load.size, MESSAGE)
    said = (words * (each // len(words) + 1))[:each]
    messages = [{"role": ("assistant", "user")[at % 2], "content": f"{at}: {said}"} for at in range(load.size // each)]
    messages[0] = {"role": "system", "content": said}
    if messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": "Go on."})
    found = []
    for turn in range(load.turns):
        body: dict[str, Any] = {"model": "m", "messages": messages, "temperature": 0.5, "max_tokens": 500}
        if load.streaming:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        found.append(json.dumps(body).encode())
        messages += [{"role": "assistant", "content": TEXT}, {"role": "user", "content": f"Yes, and then? ({turn})"}]
    return found


def requests(load: Load, given: list[bytes], secret: str) -> Iterator[bytes]:
    """The requests of one conversation."""
    for body in given:
        yield (
            f"POST {load.path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{load.port}\r\naccept: application/json\r\n"
            f"user-agent: load\r\nauthorization: Bearer {secret}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body


class Agent(asyncio.Protocol):
    """One agent's connection: asks, and asks the next thing once the whole answer is there. The time of a call that was
    asked again is that of all its attempts."""

    def __init__(self, streaming: bool) -> None:
        self.end = b"0\r\n\r\n" if streaming else b"}"
        self.mark = b"[DONE]" if streaming else TEXT[-20:].encode()
        self.came = bytearray()
        self.times: list[float] = []
        self.failed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, asked: Iterator[bytes]) -> asyncio.Future[None]:
        """Ask all of these; done when the last one is answered."""
        self.asked = asked
        self.done = asyncio.get_running_loop().create_future()
        self.next()
        return self.done

    def next(self) -> None:
        request = next(self.asked, None)
        if request is None:
            self.done.set_result(None)
            return
        self.begun = time.perf_counter()
        self.request = request
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.came += data
        if self.came.startswith(GOOD):
            if self.came.endswith(self.end) and self.mark in self.came:
                self.times.append(time.perf_counter() - self.begun)
                self.came.clear()
                self.next()
        elif len(self.came) >= len(GOOD) and self.came.endswith(b"}"):  # an error, all of it: asked again, as SDKs do
            self.failed += 1
            if self.failed > MOST_FAILED:
                self.connection_lost(None)
                return
            self.came.clear()
            self.transport.write(self.request)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"an answer broke off ({error}): {bytes(self.came)!r}"))


async def run(load: Load) -> None:
    """Put the load on, and print what came of it."""
    given = bodies(load)
    loop = asyncio.get_running_loop()
    agents = [
        (await loop.create_connection(lambda: Agent(load.streaming), "127.0.0.1", load.port))[1] for _ in load.secrets
    ]
    everyone = list(zip(agents, load.secrets, strict=True))
    await asyncio.gather(*(agent.ask(requests(load, given, mine[0])) for agent, mine in everyone))
    for agent in agents:
        agent.times.clear()
    say(None)
    await loop.run_in_executor(None, sys.stdin.readline)
    begun = time.perf_counter()
    await asyncio.gather(
        *(
            agent.ask(chain.from_iterable(requests(load, given, secret) for secret in mine[1:]))
            for agent, mine in everyone
        )
    )
    seconds = time.perf_counter() - begun
    times = sorted(chain.from_iterable(agent.times for agent in agents))
    for agent in agents:
        agent.transport.abort()
    failed = sum(agent.failed for agent in agents)
    say({"calls": len(times), "failed": failed, "seconds": seconds, "p50": at(times, 0.5), "p99": at(times, 0.99)})


def at(times: list[float], quantile: float) -> float:
    return times[min(int(quantile * len(times)), len(times) - 1)]


def say(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def main() -> None:
    """The command."""
    while line := sys.stdin.readline():
        asyncio.run(run(Load(**json.loads(line))))


if __name__ == "__main__":
    main()

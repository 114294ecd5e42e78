"""A canned upstream: an OpenAI-compatible server that answers every request alike, in a process of its own.

    python tests/benchmarks/upstream.py PIECES

It prints its port and serves until its standard input ends. With 0 `PIECES` an answer comes whole; else it is a stream
of so many chunks of text, each sent by itself, as providers do. Nothing is parsed but the length of a body, so that it
costs as little as a server can; it imports the standard library only, since both sides' interpreters run it.
"""

import asyncio
import json
import sys

TEXT = "The quick brown fox jumps over the lazy dog, and then it rests. " * 8
"""What is answered."""
USAGE = {"prompt_tokens": 250, "completion_tokens": 120, "total_tokens": 370}
ABOUT = {"id": "chatcmpl-canned", "created": 1_700_000_000, "model": "canned"}


def whole() -> list[bytes]:
    """The answer in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    body = json.dumps({**ABOUT, "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return [head + body]


def stream(pieces: int) -> list[bytes]:
    """The answer in so many pieces of text, and what stands around them."""
    size = -(-len(TEXT) // pieces)
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": TEXT[start : start + size]} for start in range(0, len(TEXT), size)]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices += [[{"index": 0, "delta": {}, "finish_reason": "stop"}], []]
    chunks = [{**ABOUT, "object": "chat.completion.chunk", "choices": choice} for choice in choices]
    chunks[-1]["usage"] = USAGE
    events = [b"data: %b\n\n" % data for data in (*(json.dumps(chunk).encode() for chunk in chunks), b"[DONE]")]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]


class Answering(asyncio.Protocol):
    """One connection: each request with a `content-length` is answered once its body is there."""

    def __init__(self, answer: list[bytes]) -> None:
        self.answer = answer
        self.head = b""
        self.left = 0
        """Bytes of the body that are still to come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            if not self.left:
                head, mark, rest = (self.head + data).partition(b"\r\n\r\n")
                if not mark:
                    self.head = head
                    return
                self.head = b""
                self.left = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                data = rest
            taken = min(self.left, len(data))
            self.left -= taken
            data = data[taken:]
            if not self.left:
                for piece in self.answer:
                    self.transport.write(piece)


async def serve(pieces: int) -> None:
    """Serve until standard input ends."""
    answer = stream(pieces) if pieces else whole()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(answer), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

"""An endpoint of a model's on the loopback interface, in a thread: it echoes, or fails, as its address says.

`/v1` answers with the last message; `/status/429/v1` with that status. Streams where it is asked to.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

CONTEXT = 10_000
"""Characters of the longest conversation."""
OVERLONG = {"error": {"code": "context_length_exceeded", "message": "maximum context length exceeded", "type": "x"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = asked["messages"][-1]["content"]
        if failure := re.match(r"/status/(\d+)/", self.path):
            self._send(int(failure[1]), {"error": {"message": "no", "type": "x"}})
        elif len(said) > CONTEXT:
            self._send(400, OVERLONG)
        elif asked.get("stream"):
            self._stream(said)
        else:
            self._send(200, answer(said, asked.get("max_tokens")))

    def _send(self, status: int, document: object) -> None:
        self._body(status, "application/json", json.dumps(document).encode())

    def _stream(self, said: str) -> None:
        pieces: list[dict[str, object]] = [{"delta": {"role": "assistant", "content": ""}}]
        pieces += [{"delta": {"content": word}} for word in re.findall(r"\S+\s*", said)]
        pieces += [{"delta": {}, "finish_reason": "stop"}]
        events = [{"id": "1", "model": "echo", "choices": [{"index": 0, **piece}]} for piece in pieces]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self._body(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())

    def _body(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def answer(said: str, most: int | None) -> dict[str, object]:
    """A completion that repeats what was said, as far as the limit lets it."""
    words = said.split()[:most]
    usage = {"prompt_tokens": len(said.split()) or 1, "completion_tokens": len(words)}
    message = {"role": "assistant", "content": " ".join(words)}
    return {
        "id": "1",
        "model": "echo",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }


class Quiet(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no error."""


@contextmanager
def echoing() -> Iterator[str]:
    """The address of an endpoint, for a block."""
    with Quiet(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

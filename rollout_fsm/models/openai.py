"""A model behind an OpenAI-compatible endpoint: one request, one answer, a `ProviderError` for everything else (L40).

It does not retry (that is the harness's business), does not count and does not limit. A key is named by its environment
variable and read when it is sent; it is in no repr, message or trace. A cancelled call gives its connection back.
"""

import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from types import TracebackType
from typing import Literal, Self

import httpx2
import trio
from attrs import define, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.gateway.dialects.chat import ChunkAssembler, parse_response, render_request
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import JSON, Request, Response, Sampling
from rollout_fsm.model import Model
from rollout_fsm.models.event_stream import Event, EventStream
from rollout_fsm.models.faults import complained, complaint_in, odd_answer, refused, shown_url, unreachable
from rollout_fsm.models.reading import ENCODINGS, read
from rollout_fsm.strict_json import parse_json

__all__ = ["OpenAIModel"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"
BASE_URL_VAR = "OPENAI_BASE_URL"
NO_KEY = "EMPTY"
"""What is sent to an endpoint of one's own that needs no key: most servers want the header all the same."""

CONNECT = 30.0
"""Seconds for a connection to come about, at most."""

IDLE = 4.0
"""Seconds that an unused connection is kept: less than the 5 after which the field's usual server closes it, so that no
call starts on a connection that is just being closed."""

LARGEST = 64 * 1024 * 1024
"""Bytes of an answer beyond which it is taken for a fault."""

LARGEST_COMPLAINT = 1024 * 1024
"""Bytes of an error's body that are read."""

CLOSING = 5.0
"""Seconds given to open connections to say goodbye."""


@define(eq=False, slots=False)
class OpenAIModel(Model):
    """The chat-completions endpoint at `base_url`, else at OPENAI_BASE_URL, else OpenAI's own.

    `api_key_var` names the environment variable of the key (None: no key). `timeout` is in seconds without a byte; a
    model that answers in one piece is silent until it is done, hence the long default. `stream` asks for the answer in
    chunks, which keeps connections alive through proxies. `limit_field` is what the endpoint calls `max_tokens`
    (OpenAI's own differs). `headers` are added to each request.

    One object serves any number of calls at once. Entered as an async context manager, it keeps its connections; used
    without, it opens one for each call.
    """

    name: str
    base_url: str | None = field(
        default=None, kw_only=True, repr=lambda url: repr(url if url is None else shown_url(str(url)))
    )
    api_key_var: str | None = field(default="OPENAI_API_KEY", kw_only=True)
    timeout: float | None = field(default=600.0, kw_only=True)
    stream: bool = field(default=False, kw_only=True)
    headers: Mapping[str, str] = field(factory=dict, kw_only=True, repr=False)
    limit_field: Literal["max_tokens", "max_completion_tokens"] | None = field(default=None, kw_only=True, repr=False)
    _client: httpx2.AsyncClient | None = field(default=None, init=False, repr=False)
    _entered: int = field(default=0, init=False, repr=False)

    async def __aenter__(self) -> Self:
        if self._client is None:
            self._client = self._open()
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0 and self._client is not None:
            client, self._client = self._client, None
            with trio.move_on_after(CLOSING, shield=True):
                await client.aclose()

    def check(self) -> None:
        """Whether the model could be asked, without asking it. Raises `ValueError` naming what to set."""
        self._endpoint()
        self._key()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Ask once.

        Raises `ProviderError` with the HTTP status, None where there was none, and `OverlongPromptError` (L21).
        """
        try:
            url = self._url()
            headers = {
                "Authorization": f"Bearer {self._key()}",
                "Content-Type": "application/json",
                "Accept-Encoding": ENCODINGS,
                **({"Accept": "text/event-stream"} if self.stream else {}),
                **self.headers,
            }
        except ValueError as error:
            raise ProviderError(str(error)) from None
        content = json.dumps(self._body(request, sampling)).encode()  # ASCII: a lone surrogate is escaped, not refused
        async with self._opened() as client:
            return await self._ask(client, url, headers, content)

    def _body(self, request: Request, sampling: Sampling) -> dict[str, JSON]:
        limit = self.limit_field
        if limit is None:
            limit = "max_completion_tokens" if self._endpoint() == DEFAULT_BASE_URL else "max_tokens"
        body = render_request(request, model=self.name, sampling=sampling, limit_field=limit)
        if self.stream:
            body["stream"] = True
            body.setdefault("stream_options", {"include_usage": True})
        return body

    async def _ask(self, client: httpx2.AsyncClient, url: str, headers: Mapping[str, str], content: bytes) -> Response:
        doing = "asking"
        try:
            async with client.stream("POST", url, headers=headers, content=content) as answer:
                doing = "reading the answer of"
                if not 200 <= answer.status_code < 300:
                    body = await _complaint(answer)
                    raise refused(answer.status_code, body, url=url, location=answer.headers.get("location"))
                if answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
                    return await _streamed(answer, url)
                return _whole(await _body(answer, url), url, answer.headers.get("content-type"))
        except (httpx2.RequestError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise unreachable(error, doing=doing, url=url, timeout=self.timeout) from error

    def _given(self) -> str:
        return (self.base_url or os.environ.get(BASE_URL_VAR) or DEFAULT_BASE_URL).strip()

    def _url(self) -> str:
        """Where requests go; the query of the base URL, if it has one, stays at the end."""
        _, mark, query = self._given().partition("?")
        return f"{self._endpoint()}/chat/completions{mark}{query}"

    def _endpoint(self) -> str:
        """The base URL, without query and last slash. Raises `ValueError` for what is none."""
        given = self._given().partition("?")[0]
        url = given.rstrip("/").removesuffix("/chat/completions").rstrip("/")
        if not url.lower().startswith(("http://", "https://")):
            source = "base_url" if self.base_url else BASE_URL_VAR
            shown = shown_url(given).rpartition("@")[2]
            raise ValueError(f"{source} of the model {self.name!r} must begin with http:// or https://, got {shown!r}")
        return url

    def _key(self) -> str:
        """The key. Raises `ValueError` when it cannot be sent, or when OpenAI's own endpoint would be asked without."""
        key = (os.environ.get(self.api_key_var) or "").strip() if self.api_key_var else ""
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the key in {self.api_key_var} has characters that no key has: set it again")
        if not key and self._endpoint() == DEFAULT_BASE_URL:
            variable = self.api_key_var or "api_key_var"
            raise ValueError(
                f"no key for {DEFAULT_BASE_URL}: set the environment variable {variable}, or name another endpoint "
                f"by base_url or {BASE_URL_VAR}"
            )
        return key or NO_KEY

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[httpx2.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._open() as client:
            yield client

    def _open(self) -> httpx2.AsyncClient:
        connect = CONNECT if self.timeout is None else min(CONNECT, self.timeout)
        return httpx2.AsyncClient(
            verify=_tls(),
            trust_env=False,  # a proxy or a netrc of the machine would change who is asked, and with which key
            timeout=httpx2.Timeout(self.timeout, connect=connect, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE),
            follow_redirects=False,
        )


@cache
def _tls() -> ssl.SSLContext:
    """Made once: the certificates of the machine take a while to read."""
    return httpx2.create_ssl_context(trust_env=False)


async def _complaint(answer: httpx2.Response) -> bytes:
    """An error's body, or as much as came: the status is known already and says more than a broken connection."""
    body = bytearray()

    def take(piece: bytes) -> bool:
        body.extend(piece)
        return len(body) >= LARGEST_COMPLAINT

    with contextlib.suppress(httpx2.RequestError):
        await read(answer, take)
    return bytes(body[:LARGEST_COMPLAINT])


async def _body(answer: httpx2.Response, url: str) -> bytes:
    body = bytearray()

    def take(piece: bytes) -> bool:
        body.extend(piece)
        if len(body) > LARGEST:
            raise odd_answer(f"the answer is larger than {LARGEST} bytes", url=url, body=bytes(body))
        return False

    await read(answer, take)
    return bytes(body)


def _whole(body: bytes, url: str, content_type: str | None) -> Response:
    try:
        answer = parse_json(body)
    except ValueError:
        what = (
            f"the answer is not JSON (content type {content_type or 'not given'}); check the base URL (most end in /v1)"
        )
        raise odd_answer(what, url=url, body=body) from None
    if not isinstance(answer, dict):
        raise odd_answer("the answer is JSON, but no object", url=url, body=body)
    if complaint := complaint_in(answer):
        raise odd_answer("the answer is an error in spite of its status 200", url=url, complaint=complaint)
    try:
        return parse_response(answer)
    except DialectError as error:
        raise odd_answer(f"the answer is no chat completion: {error}", url=url, body=body) from None


async def _streamed(answer: httpx2.Response, url: str) -> Response:
    """The response that a stream of chunks says, whether it was asked for or not."""
    fold = _Fold(url)
    await read(answer, fold.feed)
    return fold.response()


class _Fold:
    """A stream, folded. What it raises says what the stream did."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._events = EventStream()
        self._assembler = ChunkAssembler()
        self._size = 0
        self._chunks = 0
        self._chose = False
        self._said_done = False

    def feed(self, piece: bytes) -> bool:
        """Take what came; whether the stream has said that this was all."""
        self._size += len(piece)
        if self._size > LARGEST:
            raise odd_answer(f"the stream is larger than {LARGEST} bytes", url=self._url)
        for event in self._events.feed(piece):
            self._take(event)
        return self._said_done

    def _take(self, event: Event, *, last: bool = False) -> None:
        """Take an event. `last`: the stream ended before the event did, so half of one is no fault of its own."""
        data = event.data.strip()
        if self._said_done or not (data or event.name == "error"):
            return
        if data == "[DONE]":
            self._said_done = True
            self._assembler.end()
            return
        try:
            chunk = parse_json(data)
        except ValueError:
            chunk = None
        if event.name == "error":
            said = complained(data if chunk is None else chunk)
            raise odd_answer("the stream reports an error", url=self._url, complaint=said)
        if not isinstance(chunk, dict):
            if last:
                return
            raise odd_answer("the stream holds a chunk that is no JSON object", url=self._url, body=data.encode())
        if complaint := complaint_in(chunk):
            raise odd_answer("the stream reports an error", url=self._url, complaint=complaint)
        self._chunks += 1
        self._chose = self._chose or bool(chunk.get("choices"))
        try:
            self._assembler.add(chunk)
        except DialectError as error:
            raise odd_answer(
                f"the stream holds no chat completion: {error}", url=self._url, body=data.encode()
            ) from None

    def response(self) -> Response:
        """The response, once the stream has ended."""
        for event in self._events.end():
            self._take(event, last=True)
        if not self._assembler.finished:
            what = f"the stream was closed after {self._chunks} chunks, before its end: the answer is cut off"
            raise odd_answer(what, url=self._url)
        if not self._chose:
            raise odd_answer("the stream ended without a choice in it", url=self._url)
        try:
            return self._assembler.response()
        except DialectError as error:
            raise odd_answer(f"the stream holds no chat completion: {error}", url=self._url) from None

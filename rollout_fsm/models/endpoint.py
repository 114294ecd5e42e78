"""A model behind HTTP: one request, one answer, a `ProviderError` for everything else (L40).

What is common to the clients of all dialects: where the endpoint is, its key, how it is asked and how its answer is
read. It does not retry (that is the harness's business), does not count and does not limit. A key is named by its
environment variable and read when it is sent; it is in no repr, message or trace. A cancelled call gives its connection
back.
"""

import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from attrs import Factory, define, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.gateway.dialects.dialect import Dialect, DialectError
from rollout_fsm.messages import JSON, Deliver, Request, Response, Sampling
from rollout_fsm.model import Model
from rollout_fsm.models.answers import complaint_of, document, whole
from rollout_fsm.models.connections import Connections
from rollout_fsm.models.faults import NetworkError, refused, shown_url, unreachable
from rollout_fsm.models.folding import Fold
from rollout_fsm.models.reading import ENCODINGS, read
from rollout_fsm.models.wire import Answer
from rollout_fsm.strict_json import json_bytes

__all__ = ["EndpointModel"]

T = TypeVar("T")


def _shown(url: str | None) -> str:
    return repr(url if url is None else shown_url(str(url)))


@define(eq=False, slots=False)
class EndpointModel(Model):
    """An endpoint. A subclass says where it is unless told, which dialects it speaks, and how it wants its key."""

    DEFAULT_BASE_URL: ClassVar[str]
    BASE_URL_VAR: ClassVar[str]
    KEY_VAR: ClassVar[str]
    PATHS: ClassVar[tuple[str, ...]]
    """What a base URL may end in by mistake: the paths of the calls themselves."""

    name: str
    base_url: str | None = field(default=None, kw_only=True, repr=_shown)
    api_key_var: str | None = field(default=Factory(lambda self: self.KEY_VAR, takes_self=True), kw_only=True)
    timeout: float | None = field(default=600.0, kw_only=True)
    stream: bool = field(default=False, kw_only=True)
    headers: Mapping[str, str] = field(factory=dict, kw_only=True, repr=False)
    _connections: Connections | None = field(default=None, init=False, repr=False)
    _entered: int = field(default=0, init=False, repr=False)

    async def __aenter__(self) -> Self:
        if self._connections is None:
            self._connections = Connections(self.timeout)
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0 and self._connections is not None:
            connections, self._connections = self._connections, None
            connections.close()

    def check(self) -> None:
        """Whether the model could be asked, without asking it. Raises `ValueError` naming what to set."""
        self._endpoint()
        self._key()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Ask once.

        Raises `ProviderError` with the HTTP status, None where there was none, and `OverlongPromptError` (L21).
        """
        return await self._answer(request, sampling, stream=self.stream, deliver=None)

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        """As `respond`, with the answer asked for as a stream and its pieces told as they come. An endpoint that
        answers in one piece all the same tells none."""
        return await self._answer(request, sampling, stream=True, deliver=deliver)

    # What a subclass says

    @abstractmethod
    def _dialect(self, request: Request) -> Dialect:
        """In which dialect a request is asked."""

    @abstractmethod
    def _authorization(self, key: str) -> dict[str, str]:
        """The headers that every request has."""

    # Asking

    async def _answer(self, request: Request, sampling: Sampling, *, stream: bool, deliver: Deliver | None) -> Response:
        dialect = self._dialect_of(request)
        body = self._body(dialect, request, sampling, stream=stream)
        headers = dict(_passed_on(request, dialect))
        if stream:
            headers["accept"] = "text/event-stream"

        async def take(answer: Answer, url: str) -> Response:
            if (answer.header(b"content-type") or "").lower().startswith("text/event-stream"):
                fold = Fold(dialect, url, deliver)
                await read(answer, fold.feed)
                return await fold.response()
            return await whole(answer, dialect, url)

        return await self._ask(dialect.path, body, headers, take)

    async def _beside(self, path: str, dialect: Dialect, request: Request, body: Mapping[str, JSON]) -> dict[str, JSON]:
        """What the endpoint answers about a request at another path than that of its dialect."""
        return await self._ask(path, body, _passed_on(request, dialect), document)

    def _dialect_of(self, request: Request) -> Dialect:
        try:
            return self._dialect(request)
        except ValueError as error:
            raise ProviderError(str(error)) from None

    def _body(self, dialect: Dialect, request: Request, sampling: Sampling, *, stream: bool) -> dict[str, JSON]:
        try:
            return dialect.render_request(request, model=self.name, sampling=sampling, stream=stream)
        except DialectError as error:
            said = f"the request cannot be put to the model {self.name!r}, which is asked at {dialect.path}: {error}"
            raise ProviderError(said, status_code=400) from None

    async def _ask(
        self,
        path: str,
        body: Mapping[str, JSON],
        headers: Mapping[str, str],
        take: Callable[[Answer, str], Awaitable[T]],
    ) -> T:
        """What is taken of an answer with a good status, given before its body is read, with the URL. What goes wrong
        until then, and with the network meanwhile, is a `ProviderError`."""
        try:
            url = self._url(path)
            own = self._authorization(self._key())
        except ValueError as error:
            raise ProviderError(str(error)) from None
        given = {**own, "Content-Type": "application/json", "Accept-Encoding": ENCODINGS}
        sent = {name.lower(): (name, value) for said in (given, headers, self.headers) for name, value in said.items()}
        content = json_bytes(body)
        doing = "asking"
        connections = self._connections or Connections(self.timeout)
        try:
            async with connections.asked(url, sent, content) as answer:
                doing = "reading the answer of"
                if not 200 <= answer.status < 300:
                    said = await complaint_of(answer)
                    raise refused(answer.status, said, url=url, location=answer.header(b"location"))
                return await take(answer, url)
        except NetworkError as error:
            raise unreachable(error, doing=doing, url=url, timeout=self.timeout) from error
        finally:
            if connections is not self._connections:  # opened for this call, or left meanwhile by who had entered it
                connections.close()

    def _given(self) -> str:
        given = self.base_url or os.environ.get(self.BASE_URL_VAR) or self.DEFAULT_BASE_URL
        return given.partition("#")[0].strip()

    def _url(self, path: str) -> str:
        """Where requests go; the query of the base URL, if it has one, stays at the end."""
        _, mark, query = self._given().partition("?")
        return f"{self._endpoint()}{path}{mark}{query}"

    def _endpoint(self) -> str:
        """The base URL, without query and last slash. Raises `ValueError` for what is none."""
        given = self._given().partition("?")[0]
        url = _without(given, self.PATHS)
        if not url.lower().startswith(("http://", "https://")):
            source = "base_url" if self.base_url else self.BASE_URL_VAR
            shown = shown_url(given).rpartition("@")[2]
            raise ValueError(f"{source} of the model {self.name!r} must begin with http:// or https://, got {shown!r}")
        return url

    def _key(self) -> str:
        """The key, empty for none. Raises `ValueError` when it cannot be sent, or when the provider itself would be
        asked without."""
        key = (os.environ.get(self.api_key_var) or "").strip() if self.api_key_var else ""
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the key in {self.api_key_var} has characters that no key has: set it again")
        if not key and self._endpoint() == self.DEFAULT_BASE_URL:
            variable = self.api_key_var or "api_key_var"
            raise ValueError(
                f"no key for {self.DEFAULT_BASE_URL}: set the environment variable {variable}, or name another "
                f"endpoint by base_url or {self.BASE_URL_VAR}"
            )
        return key


@lru_cache(maxsize=64)
def _without(url: str, paths: tuple[str, ...]) -> str:
    """A base URL without the path of a call that it may end in, and without last slash."""
    url = url.rstrip("/")
    for path in paths:
        url = url.removesuffix(path).rstrip("/")
    return url


def _passed_on(request: Request, dialect: Dialect) -> Mapping[str, str]:
    """The headers of the harness's own request, where it is in the dialect that is asked in."""
    native = request.native
    return native.headers if native is not None and native.dialect == dialect.name else {}

"""A client of tool servers (MCP): who they are is not asked, a URL over HTTP or the streams of a program.

It holds tasks and connections open, so it is a context manager, to be held by one task. The package that speaks the
protocol takes a second to import; that is done when it is needed, and in a thread.
"""

import ipaddress
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import trio
from attrs import frozen

from rollout_fsm.errors import text
from rollout_fsm.importing import imported
from rollout_fsm.messages import JSON
from rollout_fsm.strict_json import parse_json

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

CONNECT_TIMEOUT = 30.0
"""Seconds that connecting and sending may take. An answer may take any time: whoever calls a tool bounds that."""

PAGES = 100
"""How many pages of tools are read; a server that never comes to an end is taken for broken."""

KEEP_ALIVE = 2.0
"""Seconds that an idle connection is kept for the next call: less than any server does."""

FAILED = -32000
"""JSON-RPC's code for a failure that is the server's own."""

_PROTOCOL = "mcp.client.streamable_http"


@frozen(eq=False)
class ToolClient:
    """A connection to one tool server."""

    _client: "Client"

    async def list_tools(self) -> Sequence["mcp_types.Tool"]:
        """All that it offers. Raises what keeps it from being asked."""
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            if (cursor := page.next_cursor) is None:
                return tools
        raise RuntimeError(f"it has more than {PAGES} pages of tools")

    async def call_tool(self, name: str, arguments: Mapping[str, JSON]) -> "mcp_types.CallToolResult":
        """Call one of its tools; a cancellation reaches it. Raises what keeps it from being called.

        What no JSON can carry would take down the connection: a lone surrogate becomes `?`, and infinity is a
        `ValueError`.
        """
        sent = parse_json(json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace"))
        assert isinstance(sent, dict)
        return await self._client.call_tool(name.encode(errors="replace").decode(), sent)


@asynccontextmanager
async def http_tool_client(url: str, *, headers: Mapping[str, str] | None = None) -> AsyncIterator[ToolClient]:
    """A connection over streamable HTTP, with these headers in each request. Redirects stay within the origin, and a
    server on this machine is not looked for behind a proxy."""
    await imported(_PROTOCOL)
    from mcp.client.streamable_http import streamable_http_client

    http = await _http(url, headers or {})
    async with http, tool_client(streamable_http_client(url, http_client=http)) as client:
        yield client


@asynccontextmanager
async def tool_client(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[ToolClient]:
    """A connection over a transport of the protocol package's: what entering it gives are its two streams."""
    await imported(_PROTOCOL)
    from mcp import Client

    async with Client(transport, cache=None) as client:
        yield ToolClient(client)


def text_of(result: "mcp_types.CallToolResult") -> str:
    """A result as a model reads it: its texts, and for what is none, what that is."""
    return "\n".join(map(_shown, result.content))


def _shown(item: "mcp_types.ContentBlock") -> str:
    match item.type:
        case "text":
            return item.text
        case "image" | "audio":
            return f"[{item.type} {item.mime_type}, left out: a result is text]"
        case "resource_link":
            return f"[resource {item.uri}]"
        case "resource":
            kept = getattr(item.resource, "text", None)
            return kept if isinstance(kept, str) else f"[resource {item.resource.uri}, left out: a result is text]"


class _Http(httpx2.AsyncClient):
    """A failed request is an answer that says so: the protocol package would take down the whole connection with it."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except httpx2.TransportError as error:
            failure: dict[str, JSON] = {"code": FAILED, "message": text(error)}
            return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": failure}, request=request)


async def _http(url: str, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=None)
    limits = httpx2.Limits(keepalive_expiry=KEEP_ALIVE)
    make = partial(_Http, headers=dict(headers), timeout=timeout, limits=limits)
    if _is_local(url):
        plain = not url.startswith("https:")
        return make(trust_env=False, transport=httpx2.AsyncHTTPTransport(verify=not plain, limits=limits))
    return await trio.to_thread.run_sync(make)  # reading certificates takes a while


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

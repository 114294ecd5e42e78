"""An existing MCP server that is reached over HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from rollout_fsm.errors import ToolsetError, leaves, text
from rollout_fsm.tool_client import http_tool_client
from rollout_fsm.toolset import TOOL_TIMEOUT, RolloutContext
from rollout_fsm.toolsets.bridge import Bridge
from rollout_fsm.toolsets.source import SourcedToolset, ToolSource

__all__ = ["HttpToolset"]


class HttpToolset(SourcedToolset):
    """`HttpToolset("https://tools.example/mcp", headers={"Authorization": "Bearer …"})`.

    The engine calls the server for the rollout, which is given a URL of its own: neither the server's address nor the
    headers enter the box, and a network policy need not name it. It is connected to when the rollout is set up. `name`
    is the host unless given, `tool_timeout` in seconds bounds a call.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        tool_timeout: float | None = TOOL_TIMEOUT,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL of a tool server begins with http:// or https:// and a host, not {url!r}")
        self.tool_timeout = tool_timeout
        self._url = url
        self._headers = dict(headers or {})
        self._name = name or parts.hostname

    @property
    def name(self) -> str:
        """The host's, unless it was given another."""
        return self._name

    @asynccontextmanager
    async def source(self, context: RolloutContext | None) -> AsyncIterator[ToolSource]:
        """A connection to the server. Raises `ToolsetError` where there is none."""
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(http_tool_client(self._url, headers=self._headers))
            except Exception as error:
                why = "; ".join(text(leaf) for leaf in leaves(error))
                raise ToolsetError(f"tool server {self._name!r} cannot be reached: {why}") from error
            yield Bridge(client)

    def __repr__(self) -> str:
        return f"<HttpToolset {self._name}>"

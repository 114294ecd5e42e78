"""An existing MCP server that is a program, spoken to over its standard input and output.

It runs on the engine's machine, in a session of its own, under a supervisor that ends it with whatever it has started,
also when the engine is killed. Its environment is an allow-list, so that no key of the engine's reaches it unless it is
named.
"""

import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from rollout_fsm.errors import ToolsetError, leaves, text
from rollout_fsm.runtimes.launch import MARKER
from rollout_fsm.tool_client import tool_client
from rollout_fsm.toolset import TOOL_TIMEOUT, RolloutContext
from rollout_fsm.toolsets.bridge import Bridge
from rollout_fsm.toolsets.program import Program, running
from rollout_fsm.toolsets.source import SourcedToolset, ToolSource

__all__ = ["StdioToolset"]

ALLOWED = ("PATH", "HOME", "LANG", "TMPDIR")
"""The engine's own variables that a server has, too."""


class StdioToolset(SourcedToolset):
    """`StdioToolset(["search-server", "--index", "docs"], env={"SEARCH_KEY": key})`.

    `argv`: a list, or a text that is split as a shell would (no shell runs it). The program has the engine's PATH,
    HOME, LANG and TMPDIR, ROLLOUT_STATE_URL and ROLLOUT_STATE_SECRET where the engine has a gateway (see
    `RolloutContext.state_url`), and `env`; it runs in `cwd`, the engine's folder unless given. It is started when the
    rollout is set up, and killed with everything that it started when that ends, or the engine's process, however.
    `name` is the program's unless given, `tool_timeout` in seconds bounds a call.
    """

    def __init__(
        self,
        argv: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        name: str | None = None,
        tool_timeout: float | None = TOOL_TIMEOUT,
    ) -> None:
        self._argv = tuple(shlex.split(argv) if isinstance(argv, str) else argv)
        if not self._argv or not all(isinstance(item, str) for item in self._argv):
            raise ValueError(f"the command line of a tool server is a text or a list of texts, and not empty: {argv!r}")
        self._env = dict(env or {})
        self._cwd = Path.cwd() if cwd is None else Path(cwd)
        self._name = name or os.path.basename(self._argv[0])
        self.tool_timeout = tool_timeout

    @property
    def name(self) -> str:
        """The program's, unless it was given another."""
        return self._name

    @asynccontextmanager
    async def source(self, context: RolloutContext | None) -> AsyncIterator[ToolSource]:
        """The running server. Raises `ToolsetError` with its last words where it does not start."""
        async with AsyncExitStack() as stack:
            started = running(self._name, self._argv, self._cwd, self._variables(context))
            program = await stack.enter_async_context(started)
            try:
                client = await stack.enter_async_context(tool_client(program.streams()))
            except Exception as error:
                raise self._unusable(program, error) from error
            yield Bridge(client)

    def _variables(self, context: RolloutContext | None) -> dict[str, str]:
        env = {name: os.environ[name] for name in ALLOWED if name in os.environ}
        if context is not None and context.state_url:
            env |= {"ROLLOUT_STATE_URL": context.state_url, "ROLLOUT_STATE_SECRET": context.state_secret}
        outer = {name: value for name, value in os.environ.items() if name.startswith(MARKER)}
        return {**env, **self._env, **outer}

    def _unusable(self, program: Program, error: Exception) -> ToolsetError:
        why = "; ".join(text(leaf) for leaf in leaves(error))
        return ToolsetError(f"tool server {self._name!r} could not be spoken to: {why}{program.last_words}")

    def __repr__(self) -> str:
        return f"<StdioToolset {self._name}>"

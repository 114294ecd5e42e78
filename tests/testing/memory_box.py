"""A runtime that keeps its whole contract in memory: files, pipes, processes, a network. Its shell knows the kit's
scripts, and no others.

It is made to be broken: whatever a test of the kit looks at is one small method here, for a subclass to get wrong.
`MACHINE` is what there is outside of the process: boxes by their token, and whatever else a broken one leaves there.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import trio
from attrs import define, field, frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.messages import JSON
from rollout_fsm.network import NetworkPolicy
from rollout_fsm.runtime import ProgramResult, Route, Runtime
from rollout_fsm.runtimes import HeadTail
from rollout_fsm.testing.runtime import scripts

CAP = 1000
"""Bytes kept of an output."""
WORKSPACE = "/work"
INSIDE, OUTSIDE = "http://10.0.0.1:", "http://127.0.0.1:"
"""How programs reach the host, and how the engine does."""
UNREACHABLE = ProgramResult(exit_code=7, stderr="could not connect")

checkpoint = trio.lowlevel.checkpoint


@define(eq=False)
class Process:
    """A process in a box."""

    command: Sequence[str]
    pipe: str = ""
    """Which pipe it holds open."""
    serves: str = ""
    """On which pipe it answers."""
    scope: trio.CancelScope | None = None
    connection: trio.SocketStream | None = None
    of_harness: bool = False


@define(eq=False)
class Standing:
    """A box that stands."""

    files: dict[str, bytes] = field(factory=dict)
    pipes: dict[str, str] = field(factory=dict)
    """What was last said on each."""
    listening: set[str] = field(factory=set)
    """Pipes that somebody reads."""
    processes: list[Process] = field(factory=list)
    _changed: trio.Event = field(factory=trio.Event)

    def tell(self) -> None:
        """Something has changed."""
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until this is so."""
        await checkpoint()
        while not condition():
            await self._changed.wait()

    def end(self, process: Process) -> None:
        """A process dies."""
        if process in self.processes:
            self.processes.remove(process)
        if process.scope is not None:
            process.scope.cancel()
        if process.connection is not None:
            process.connection.socket.close()
        self.tell()


MACHINE: dict[str, Standing] = {}


@frozen(eq=False)
class Program:
    """A program that runs."""

    process: Process
    arguments: Sequence[str]
    input: bytes | None
    script: str


Main: TypeAlias = Callable[[Program], Awaitable[ProgramResult]]


class MemoryBox(Runtime):
    """A box in memory."""

    cannot_start: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = secrets.token_hex(8)
        self.began = False
        """Whether `start` was called."""
        self.policy: NetworkPolicy | None = None
        self.routes: Sequence[Route] = ()
        self.executing = False
        self._stopped = False
        self.mains: dict[str, Main] = {
            scripts.EXIT: self.exit,
            scripts.STRIKE_ITSELF: self.strike_itself,
            scripts.BOTH_OUTPUTS: self.both_outputs,
            scripts.NO_TEXT: self.no_text,
            scripts.ARGUMENTS: self.show_arguments,
            scripts.FLOOD: self.print_much,
            scripts.WHERE: self.where,
            scripts.SHOW: self.show,
            scripts.PUT: self.put,
            scripts.PIPES: self.make_pipes,
            scripts.LEAVE: self.leave,
            scripts.LEAVE_AND_COPY: self.leave_and_copy,
            scripts.HANG: self.hang,
            scripts.HANG_STUBBORNLY: self.hang,
            scripts.SILENT: self.silent,
            scripts.SERVE: self.serve,
            scripts.ASK: self.ask,
            scripts.ANSWER: self.answer,
            scripts.BACKGROUND: self.dial_in_background,
            scripts.FETCH: self.fetch,
            scripts.SPY: self.spy,
            "cat": self.copy,
            "env": self.show_environment,
        }
        self.environment: Mapping[str, str] = {}

    # --- its life

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def lease(self) -> dict[str, JSON]:
        return {"token": self.token}

    @classmethod
    async def reclaim(cls, lease: Mapping[str, JSON]) -> None:
        await checkpoint()
        if "token" not in lease:
            raise SandboxError(f"this is no lease of a MemoryBox: {lease!r}")
        if (left := MACHINE.pop(str(lease["token"]), None)) is not None:
            for process in list(left.processes):
                left.end(process)

    @classmethod
    async def adopt(cls, name: str, lease: Mapping[str, JSON]) -> "MemoryBox | None":
        await checkpoint()
        if lease["token"] not in MACHINE:
            return None
        adopted = cls(name)
        adopted.token = str(lease["token"])
        return adopted

    @property
    def standing(self) -> Standing:
        """What there is of it. Raises `SandboxError` where nothing is."""
        if self._stopped or self.token not in MACHINE:
            raise SandboxError(f"the box {self.name} does not stand")
        return MACHINE[self.token]

    async def start(self) -> None:
        self.began = True
        await checkpoint()
        if self.cannot_start:
            raise SandboxError("this box cannot start")
        MACHINE[self.token] = Standing()
        await checkpoint()

    async def stop(self) -> None:
        self._stopped = True
        await checkpoint()
        if (standing := MACHINE.get(self.token)) is not None:
            for process in list(standing.processes):
                self.end_at_stop(standing, process)
                await checkpoint()
            MACHINE.pop(self.token, None)

    def end_at_stop(self, standing: Standing, process: Process) -> None:
        """End a process of a box that is stopped."""
        standing.end(process)

    async def alive(self) -> bool:
        await checkpoint()
        return not self._stopped and self.token in MACHINE

    # --- programs

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        standing = self.standing
        await checkpoint()
        script, arguments = (argv[2], argv[4:]) if argv[0] == "sh" else (argv[0], argv[1:])
        if script not in self.mains:
            raise self.missing(script)
        self.environment = self.variables(env or {})
        process = Process(argv, of_harness=self.executing)
        program = Program(
            process, self.as_given(arguments), input.encode() if isinstance(input, str) else input, script
        )
        before = set(standing.processes)
        standing.processes.append(process)
        result = None
        try:
            with trio.CancelScope() as process.scope, trio.move_on_after(float("inf") if timeout is None else timeout):
                result = await self.mains[script](program)
        except trio.Cancelled:
            self.end_cancelled(standing, program, before)
            raise
        if self._stopped:
            raise SandboxError(f"the box {self.name} was stopped while a program ran")
        process.scope = None
        standing.end(process)
        if result is None:
            self.end_timed_out(standing, program, before)
            raise TimeoutError(f"a program did not end within {timeout} s")
        return ProgramResult(
            exit_code=result.exit_code, stdout=self.capped(result.stdout), stderr=self.capped(result.stderr)
        )

    def missing(self, program: str) -> Exception:
        """What is raised for a program that is not there."""
        return FileNotFoundError(f"there is no program {program!r}")

    def variables(self, added: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a program."""
        return {"PATH": "/bin", **added}

    def as_given(self, arguments: Sequence[str]) -> Sequence[str]:
        """The arguments that a program sees."""
        return arguments

    def capped(self, output: str) -> str:
        """What is kept of an output."""
        kept = HeadTail(CAP)
        kept.feed(output.encode())
        return kept.text()

    def end_cancelled(self, standing: Standing, program: Program, before: set[Process]) -> None:
        """End a program whose run was cancelled, and what it started."""
        self.end_started(standing, before)

    def end_timed_out(self, standing: Standing, program: Program, before: set[Process]) -> None:
        """End a program whose time is out, and what it started."""
        self.end_started(standing, before)

    def end_started(self, standing: Standing, before: set[Process]) -> None:
        """End what was not there before."""
        for process in list(standing.processes):
            if process not in before:
                standing.end(process)

    async def kill(self) -> bool:
        await checkpoint()
        for process in [each for each in self.standing.processes if self.is_harness(each)]:
            await checkpoint()
            self.standing.end(process)
        return True

    def is_harness(self, process: Process) -> bool:
        """Whether it is the harness's, and not the setup's."""
        return process.of_harness

    def started(self, program: Program, *, pipe: str = "", serves: str = "") -> Process:
        """A process that a program leaves behind."""
        process = Process(program.process.command, pipe, serves, of_harness=self.executing)
        self.standing.processes.append(process)
        return process

    # --- files

    def file(self, path: str) -> str:
        """The name of a file."""
        return path.removeprefix(f"{WORKSPACE}/")

    async def read(self, path: str) -> bytes:
        files = self.standing.files
        await checkpoint()
        if self.file(path) not in files:
            raise FileNotFoundError(f"there is no file {path!r}")
        return files[self.file(path)]

    async def write(self, path: str, data: bytes | str) -> None:
        files = self.standing.files
        await checkpoint()
        files[self.file(path)] = data.encode() if isinstance(data, str) else data

    # --- the execution

    def restrict(self, network: NetworkPolicy | None) -> None:
        self.policy = network

    @property
    def restricted(self) -> bool:
        return self.policy is not None and self.policy.restricts

    async def prepare_execution(self, routes: Sequence[Route]) -> None:
        await checkpoint()
        self.executing = True
        self.routes = routes

    def host_url(self, url: str) -> str:
        return url.replace(OUTSIDE, INSIDE)

    def reaches(self, url: str) -> bool:
        """Whether programs reach a URL."""
        return url in [self.host_url(route) for route in self.routes]

    # --- the programs that it has

    async def exit(self, program: Program) -> ProgramResult:
        await checkpoint()
        return ProgramResult(exit_code=int(program.arguments[0]))

    async def strike_itself(self, program: Program) -> ProgramResult:
        return ProgramResult(exit_code=-{"KILL": 9, "TERM": 15}[program.arguments[0]])

    async def both_outputs(self, program: Program) -> ProgramResult:
        return ProgramResult(exit_code=0, stdout=program.arguments[0], stderr=program.arguments[1])

    async def no_text(self, program: Program) -> ProgramResult:
        return printed(b"before\377\376after".decode(errors="replace"))

    async def show_arguments(self, program: Program) -> ProgramResult:
        return printed("".join(f"<{each}>" for each in program.arguments))

    async def show_environment(self, program: Program) -> ProgramResult:
        return printed("".join(f"{name}={value}\n" for name, value in self.environment.items()))

    async def print_much(self, program: Program) -> ProgramResult:
        return printed("first\n" + "filler\n" * (int(program.arguments[0]) // 7) + "last\n")

    async def copy(self, program: Program) -> ProgramResult:
        await checkpoint()
        return printed((program.input or b"").decode())

    async def where(self, program: Program) -> ProgramResult:
        return printed(f"{WORKSPACE}\n")

    async def show(self, program: Program) -> ProgramResult:
        standing, path = self.standing, program.arguments[0]
        if path not in standing.pipes:
            content = self.content(path)
            return printed(content.decode()) if content is not None else ProgramResult(exit_code=1, stderr="no file")
        standing.listening.add(path)
        standing.tell()
        await standing.until(lambda: standing.pipes[path])
        return printed(standing.pipes[path])

    def content(self, path: str) -> bytes | None:
        """What a program reads in a file."""
        return self.standing.files.get(self.file(path))

    async def put(self, program: Program) -> ProgramResult:
        path, content = program.arguments
        self.standing.files[path] = content.encode()
        return printed("")

    async def make_pipes(self, program: Program) -> ProgramResult:
        self.standing.pipes.update(dict.fromkeys(program.arguments, ""))
        return printed("")

    async def leave(self, program: Program) -> ProgramResult:
        self.started(program, pipe=program.arguments[0])
        return printed("")

    async def leave_and_copy(self, program: Program) -> ProgramResult:
        await self.leave(program)
        copied = await self.copy(program)
        self.standing.files[program.arguments[1]] = b"done\n"
        return copied

    async def hang(self, program: Program) -> ProgramResult:
        standing, (pipe, up) = self.standing, program.arguments[:2]
        self.started(program, pipe=pipe)
        if up in standing.pipes:
            await standing.until(lambda: up in standing.listening)
            standing.pipes[up] = "up\n"
            standing.tell()
        else:
            standing.files[up] = b"up\n"
        await trio.sleep_forever()

    async def silent(self, program: Program) -> ProgramResult:
        standing, (pipe,) = self.standing, program.arguments
        await standing.until(lambda: all(process.pipe != pipe for process in standing.processes))
        return printed("")

    async def serve(self, program: Program) -> ProgramResult:
        self.started(program, serves=program.arguments[0])
        return printed("")

    async def ask(self, program: Program) -> ProgramResult:
        standing, (here, there, said) = self.standing, program.arguments
        standing.pipes[here] = said
        standing.tell()
        await standing.until(lambda: standing.pipes[there] or self.is_served(here))
        return printed(f"{standing.pipes[there] or said}\n")

    def is_served(self, pipe: str) -> bool:
        """Whether a server answers on a pipe."""
        return any(process.serves == pipe for process in self.standing.processes)

    async def answer(self, program: Program) -> ProgramResult:
        standing, (here, there, said) = self.standing, program.arguments
        await standing.until(lambda: standing.pipes[here])
        standing.pipes[there] = said
        standing.tell()
        return printed(standing.pipes[here])

    async def dial_in_background(self, program: Program) -> ProgramResult:
        url = program.arguments[-1]
        if not self.reaches(url):
            return UNREACHABLE
        self.started(program).connection = await dial(url)
        return printed("")

    async def fetch(self, program: Program) -> ProgramResult:
        (url,) = program.arguments
        if not self.reaches(url):
            return UNREACHABLE
        try:
            stream = await dial(url)
        except OSError:
            return UNREACHABLE
        answer = b"".join([piece async for piece in stream])
        await stream.aclose()
        return printed(answer.partition(b"\r\n\r\n")[2].decode())

    async def spy(self, program: Program) -> ProgramResult:
        return printed("\n".join(word for process in self.visible() for word in process.command))

    def visible(self) -> Sequence[Process]:
        """The processes that programs see."""
        return self.standing.processes


def printed(text: str) -> ProgramResult:
    """The result of a program that ended well."""
    return ProgramResult(exit_code=0, stdout=text)


async def dial(url: str) -> trio.SocketStream:
    """A connection on which a URL was asked for."""
    port, _, path = url.removeprefix(INSIDE).removeprefix(OUTSIDE).partition("/")
    stream = await trio.open_tcp_stream("127.0.0.1", int(port))
    await stream.send_all(f"GET /{path} HTTP/1.1\r\n\r\n".encode())
    return stream

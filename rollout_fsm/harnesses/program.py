"""A harness that is any program: it runs in the runtime, finds the model at an OpenAI endpoint, and ends when it likes.

The program's calls come in through the gateway. What its exit status means is judged by the engine, for every program
alike (L16, L20, L41); this module says how a program is given its task. A segment is one run of the program.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import trio
from attrs import Attribute, define, field

from rollout_fsm.errors import HarnessError
from rollout_fsm.gateway.dialects.chat import render_message
from rollout_fsm.harness import Exchange, Harness, HarnessSession
from rollout_fsm.harnesses.command import command, fill, placeholders, program_name, transportable
from rollout_fsm.messages import Message, SystemMessage, TextPart, UserMessage
from rollout_fsm.runtime import ProgramResult, Runtime

__all__ = ["ProgramHarness"]

PromptBy: TypeAlias = Literal["argument", "stdin", "file"]
File: TypeAlias = Path | bytes | str

FOLDER = ".rollout"
"""The folder in the workspace in which a rollout's conversation is; each rollout has a folder of its own there."""

OWN = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
"""Variables that are the way to the model, which is the engine's to set."""


def _known_way(_harness: object, _field: "Attribute[str]", value: str) -> None:
    if value not in get_args(PromptBy):
        raise ValueError(f"prompt must be one of {', '.join(map(repr, get_args(PromptBy)))}, not {value!r}")


def _variables(_harness: object, _field: "Attribute[Mapping[str, str]]", env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env maps names to texts; {name!r} is mapped to {value!r}")
        if name in OWN:
            raise ValueError(f"env cannot set {name}: it leads the program to the rollout's own model")


def _contents(_harness: object, _field: "Attribute[Mapping[str, File]]", files: Mapping[str, File]) -> None:
    for place, content in files.items():
        if not isinstance(place, str) or not isinstance(content, Path | bytes | str):
            raise TypeError(f"files maps places in the workspace to a Path, bytes or text; {place!r} has {content!r}")


@define(eq=False, repr=False)
class ProgramHarness(Harness):
    """Any program as a harness: `ProgramHarness("my-agent --task {prompt}")`.

    `argv`: a list, or a text that is split as a shell would (no shell runs it). Placeholders in it and in the values of
    `env`: `{python}` (this interpreter), `{prompt}`, `{prompt_file}` (a file with it), `{conversation}` (a JSON file
    with the whole conversation as OpenAI messages, system prompt first), `{mcp_config}` (a JSON file that names the
    rollout's tool servers, as agent programs take it), `{endpoint}`, `{secret}`, `{model}`. A prompt put into the text
    of a shell command would be run as one: give it to the shell as an argument of its own.

    `prompt`: how the text of the user's messages is handed over: as an argument, on standard input, or in a file. Where
    `argv` names none of the three placeholders, it or the file's path is the last argument. A prompt with other than
    text of the user's (images, examples of replies) needs `{conversation}`.

    Variables, beside those of the runtime: OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
    (the rollout's own way to the model), OPENAI_MODEL, ROLLOUT_CONVERSATION (as `{conversation}`),
    ROLLOUT_SYSTEM_PROMPT if there is one, and if there are tool servers ROLLOUT_MCP_CONFIG (as `{mcp_config}`) and
    ROLLOUT_TOOL_URLS (a JSON object of names and URLs); then `env`.

    `files`: place in the workspace → a file or a folder of this machine (`Path`), or the content itself; copied at
    setup, without permissions. `multi_turn`: the program can go on with a conversation; it is then run again for each
    segment, with the new messages as the prompt. The conversation before them is the branch that its last call was on:
    a program that ends with a call on the side should keep its own notes in the workspace. `name`: what it is called;
    the program's name unless given.
    """

    argv: tuple[str, ...] = field(converter=command)
    prompt: PromptBy = field(default="argument", kw_only=True, validator=_known_way)
    env: Mapping[str, str] = field(factory=dict, kw_only=True, validator=_variables)
    files: Mapping[str, File] = field(factory=dict, kw_only=True, validator=_contents)
    multi_turn: bool = field(default=False, kw_only=True)
    _name: str | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """What the harness is called on a trace and in errors."""
        return self._name or program_name(self.argv)

    async def setup(self, runtime: Runtime) -> None:
        """Copy `files` into the workspace. Raises `FileNotFoundError` for one that is not there."""
        for place, content in self.files.items():
            for path, data in await trio.to_thread.run_sync(_read, place, content):
                await runtime.write(path, data)

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        """The runs of the program for one rollout. Raises `HarnessError` where there is no gateway."""
        if not exchange.endpoint:
            raise HarnessError(f"{self.name} is a program and needs the gateway; open the engine with gateway=True")
        return _ProgramSession(self, exchange)

    def __repr__(self) -> str:
        return f"<ProgramHarness {self.name}{' multi_turn' if self.multi_turn else ''}>"


def _read(place: str, content: File) -> list[tuple[str, bytes | str]]:
    """What is to be written, and where: one file, or all of a folder."""
    if not isinstance(content, Path):
        return [(place, content)]
    if not content.is_dir():
        return [(place, content.read_bytes())]
    inside = sorted(path for path in content.rglob("*") if path.is_file())
    return [(os.path.join(place, path.relative_to(content)), path.read_bytes()) for path in inside]


@define(eq=False, repr=False)
class _ProgramSession(HarnessSession):
    _harness: ProgramHarness
    _exchange: Exchange
    _runs: int = 0

    async def run(self, messages: Sequence[Message] | None) -> ProgramResult:
        """Run the program once, with the conversation so far and what is new in it. Returns how it ended."""
        harness, exchange, first = self._harness, self._exchange, not self._runs
        if not first and not harness.multi_turn:
            raise HarnessError(
                f"{harness.name} cannot go on with a conversation: a second segment needs a program that reads "
                "{conversation}, and ProgramHarness(…, multi_turn=True)"
            )
        self._runs += 1
        new = (*exchange.prompt, *(messages or ())) if first else tuple(messages or ())
        files = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_-]', '_', exchange.trace.id)}"
        values = {
            "python": sys.executable,
            "prompt_file": f"{files}/prompt-{self._runs}.txt",
            "conversation": f"{files}/conversation-{self._runs}.json",
            "mcp_config": f"{files}/mcp.json",
            "endpoint": exchange.endpoint,
            "secret": exchange.secret,
            "model": model if isinstance(model := exchange.trace.agent.config.get("model"), str) else "",
        }
        argv, wanted = self._line()
        if harness.prompt == "stdin" or wanted & {"prompt", "prompt_file"}:
            values["prompt"] = self._text(new, wanted)
        if "prompt_file" in wanted:
            await exchange.runtime.write(values["prompt_file"], values["prompt"])
        conversation = json.dumps([render_message(message) for message in self._conversation(new, first)])
        await exchange.runtime.write(values["conversation"], conversation)
        if exchange.tool_urls or "mcp_config" in wanted:
            await exchange.runtime.write(values["mcp_config"], _mcp_config(exchange.tool_urls))
        return await self._launch(
            [
                self._filled(item, values, "the prompt as an argument" if "{prompt}" in item else "an argument")
                for item in argv
            ],
            env=self._environment(values),
            input=values["prompt"] if harness.prompt == "stdin" else None,
        )

    def _line(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """The command line with a place for the prompt, and the placeholders that are named anywhere."""
        argv, harness = self._harness.argv, self._harness
        if harness.prompt != "stdin" and not placeholders(argv) & {"prompt", "prompt_file", "conversation"}:
            argv += ("{prompt}" if harness.prompt == "argument" else "{prompt_file}",)
        return argv, placeholders([*argv, *harness.env.values()])

    def _text(self, new: Sequence[Message], wanted: frozenset[str]) -> str:
        """The text of the user's messages, one paragraph each. A lone surrogate, which is no text, becomes `?`."""
        for message in new:
            if "conversation" not in wanted and not _is_text(message):
                raise HarnessError(
                    f"{self._harness.name} is given its prompt as text, which cannot carry a {message.role} message "
                    "like this one; have the program read {conversation}"
                )
        text = "\n\n".join(message.text for message in new if isinstance(message, UserMessage))
        return text.encode(errors="replace").decode()

    def _conversation(self, new: Sequence[Message], first: bool) -> tuple[Message, ...]:
        """The last branch of the trace, then what is new; the system prompt first, unless the program has its own."""
        branches = [] if first else self._exchange.trace.branches
        before = tuple(node.message for node in branches[-1]) if branches else ()
        system = self._exchange.system_prompt
        if system is None or (before and isinstance(before[0], SystemMessage)):
            return (*before, *new)
        return (SystemMessage(system), *before, *new)

    def _environment(self, values: Mapping[str, str]) -> dict[str, str]:
        harness, exchange = self._harness, self._exchange
        env = {"OPENAI_MODEL": values["model"], "ROLLOUT_CONVERSATION": values["conversation"]}
        if exchange.system_prompt is not None:
            env["ROLLOUT_SYSTEM_PROMPT"] = exchange.system_prompt
        if exchange.tool_urls:
            env["ROLLOUT_TOOL_URLS"] = json.dumps(dict(exchange.tool_urls))
            env["ROLLOUT_MCP_CONFIG"] = values["mcp_config"]
        env |= {name: self._filled(value, values, f"the variable {name}") for name, value in harness.env.items()}
        if "ROLLOUT_SYSTEM_PROMPT" in env:
            transportable(
                env["ROLLOUT_SYSTEM_PROMPT"],
                f"{harness.name}: the system prompt, which goes into ROLLOUT_SYSTEM_PROMPT,",
                "it is also the first message of {conversation}: env={'ROLLOUT_SYSTEM_PROMPT': ''} leaves it out here",
            )
        return env | {
            "OPENAI_BASE_URL": exchange.endpoint,
            "OPENAI_API_KEY": exchange.secret,
            "ANTHROPIC_BASE_URL": exchange.endpoint.removesuffix("/v1"),  # its clients add the version themselves
            "ANTHROPIC_API_KEY": exchange.secret,
        }

    def _filled(self, text: str, values: Mapping[str, str], what: str) -> str:
        return transportable(
            fill(text, values),
            f"{self._harness.name}: {what}",
            "use prompt='stdin', {prompt_file} or {conversation}",
        )

    async def _launch(self, argv: Sequence[str], *, env: Mapping[str, str], input: str | None) -> ProgramResult:
        try:
            return await self._exchange.runtime.run(argv, env=env, input=input)
        except (FileNotFoundError, PermissionError) as error:
            raise HarnessError(f"{self._harness.name}: the program {argv[0]!r} cannot be run: {error}") from error


def _mcp_config(tool_urls: Mapping[str, str]) -> str:
    """The tool servers in the form that agent programs read."""
    return json.dumps({"mcpServers": {name: {"type": "http", "url": url} for name, url in tool_urls.items()}})


def _is_text(message: Message) -> bool:
    if not isinstance(message, UserMessage):
        return False
    return isinstance(message.content, str) or all(isinstance(part, TextPart) for part in message.content)

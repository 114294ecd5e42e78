"""What a provider does on its own for the model, and which of it leaves the box: that is taken out of a request where
the network is restricted.

A tool is the provider's if its type says so. One that neither asks the network nor an account's stores stays; every
other one goes, those of unknown types too: nobody can say what they reach. What stays: an image or a document by URL,
which is part of the conversation; who may not have those read by the provider must not put them into it.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import is_not

from attrs import evolve, frozen

from rollout_fsm.messages import JSON, Request


@frozen
class Row:
    """A kind of tool, or a field of the request. `kind` ends with `*` where a date follows."""

    dialect: str
    kind: str
    stays: bool
    reason: str

    def fits(self, kind: str) -> bool:
        """Whether this is the row of that kind."""
        return kind.startswith(self.kind[:-1]) if self.kind.endswith("*") else kind == self.kind


TOOLS: tuple[Row, ...] = (
    Row("chat", "function", True, "the harness runs it"),
    Row("chat", "custom", True, "the harness runs it"),
    Row("chat", "*", False, "chat has no tools of a provider's that are known to stay inside"),
    Row("responses", "function", True, "the harness runs it"),
    Row("responses", "custom", True, "the harness runs it"),
    Row("responses", "namespace", True, "holds functions that the harness runs"),
    Row("responses", "local_shell", True, "the harness runs it"),
    Row("responses", "apply_patch", True, "the harness runs it"),
    Row("responses", "computer*", True, "the harness runs it"),
    Row("responses", "tool_search", True, "searches the tools of the request"),
    Row("responses", "image_generation", True, "a model that sees what this one gives it"),
    Row("responses", "programmatic_tool_calling", True, "calls tools of the request"),
    Row("responses", "code_interpreter", True, "a container without a network, unless one is asked for"),
    Row("responses", "shell", True, "the harness runs it, or a container without a network, unless one is asked for"),
    Row("responses", "web_search*", False, "searches the web"),
    Row("responses", "mcp", False, "a remote server or a connector"),
    Row("responses", "file_search", False, "reads the stores of the account"),
    Row("responses", "*", False, "nobody knows what it reaches"),
    Row("messages", "custom", True, "the harness runs it"),
    Row("messages", "bash_*", True, "the harness runs it"),
    Row("messages", "text_editor_*", True, "the harness runs it"),
    Row("messages", "computer_*", True, "the harness runs it"),
    Row("messages", "browser_toolset_*", True, "the harness runs it"),
    Row("messages", "memory_*", True, "the harness runs it"),
    Row("messages", "tool_search_tool_*", True, "searches the tools of the request"),
    Row("messages", "code_execution_*", True, "a container without a network"),
    Row("messages", "web_search_*", False, "searches the web"),
    Row("messages", "web_fetch_*", False, "reads the web"),
    Row("messages", "mcp_toolset", False, "a remote server"),
    Row("messages", "*", False, "nobody knows what it reaches"),
)
"""The first row that fits counts."""

FIELDS: tuple[Row, ...] = (
    Row("chat", "web_search_options", False, "searches the web"),
    Row("chat", "plugins", False, "OpenRouter's way to search the web"),
    Row("chat", "enable_search", False, "Qwen's way to search the web"),
    Row("chat", "search_parameters", False, "xAI's way to search the web"),
    Row("responses", "prompt", False, "a stored prompt brings tools of its own"),
    Row("messages", "mcp_servers", False, "remote servers"),
)

_HOLDERS = frozenset({"additional_tools", "tool_search_output"})
"""Items of a Responses conversation that hold tools."""


def without_external(request: Request) -> tuple[Request, tuple[str, ...]]:
    """The request without what would have the provider itself reach the network for the model (web search, remote MCP
    servers), and the names of what was removed."""
    native, removed = request.native, dict[str, None]()
    dialects = {row.dialect for row in TOOLS} if native is None else {native.dialect}
    extra = _cleaned(request.sampling.extra, dialects, removed)
    if native is not None:
        body = _cleaned(native.body, dialects, removed)
        gone = native.body.keys() - body.keys()
        extra = {name: value for name, value in extra.items() if name not in gone}
        native = evolve(native, body=body)
    if not removed:
        return request, ()
    return evolve(request, sampling=evolve(request.sampling, extra=extra), native=native), tuple(removed)


def _cleaned(body: Mapping[str, JSON], dialects: set[str], removed: dict[str, None]) -> Mapping[str, JSON]:
    """The body without it, or the very same body; `removed` learns the names."""
    changed: dict[str, JSON] = {}
    gone = {row.kind for row in FIELDS if row.dialect in dialects and body.get(row.kind) is not None}
    removed.update(dict.fromkeys(sorted(gone)))
    tools = body.get("tools")
    if isinstance(tools, list):
        left = _left(tools, dialects, removed)
        if len(left) < len(tools):
            changed["tools"] = left
            if not left:
                gone.add("tools")
    for name, clean in (("input", _item), ("messages", _message)):
        items = body.get(name)
        if isinstance(items, list) and any(map(is_not, cleaned := [clean(item, removed) for item in items], items)):
            changed[name] = cleaned
    if not (gone or changed):
        return body
    left_body = {name: changed.get(name, value) for name, value in body.items() if name not in gone}
    if "tools" in changed and _names_one(body.get("tool_choice"), set(_names(tools)) - set(_names(changed["tools"]))):
        del left_body["tool_choice"]
    if "tools" in gone:  # without tools these are refused
        left_body.pop("tool_choice", None)
        left_body.pop("parallel_tool_calls", None)
    return left_body


def _item(item: JSON, removed: dict[str, None]) -> JSON:
    """An item of a Responses conversation, without tools that it brings."""
    tools = item.get("tools") if isinstance(item, dict) and str(item.get("type")) in _HOLDERS else None
    if not isinstance(item, dict) or not isinstance(tools, list):
        return item
    left = _left(tools, {"responses"}, removed)
    return item if len(left) == len(tools) else {**item, "tools": left}


def _message(message: JSON, removed: dict[str, None]) -> JSON:
    """A message of an Anthropic conversation, without tools that it brings."""
    blocks = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(blocks, list):
        return message
    left = [block for block in blocks if not _adds_external(block, removed)]
    return message if len(left) == len(blocks) else {**message, "content": left}


def _adds_external(block: JSON, removed: dict[str, None]) -> bool:
    if not isinstance(block, dict) or block.get("type") != "tool_addition":
        return False
    tool = block.get("tool")
    defined = tool.get("definition") if isinstance(tool, dict) else None
    return isinstance(defined, dict) and not _left([defined], {"messages"}, removed)


def _left(tools: list[JSON], dialects: set[str], removed: dict[str, None]) -> list[JSON]:
    left = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(tool, dict) and isinstance(kind, str) and not _stays(tool, kind, dialects):
            removed[kind] = None
        else:
            left.append(tool)
    return left


def _stays(tool: Mapping[str, JSON], kind: str, dialects: Iterable[str]) -> bool:
    rows = [next(row for row in TOOLS if row.dialect == dialect and row.fits(kind)) for dialect in dialects]
    return any(row.stays for row in rows) and not _has_network(tool)


def _has_network(tool: Mapping[str, JSON]) -> bool:
    """Whether a tool's container has a network, or is one made before, of which nobody here knows that."""
    place = tool.get("container", tool.get("environment"))
    if isinstance(place, str):
        return True
    if not isinstance(place, dict):
        return False
    policy = place.get("network_policy")
    reference = place.get("type") == "container_reference"
    return reference or (isinstance(policy, dict) and policy.get("type") != "disabled")


def _names(tools: JSON) -> Iterator[str]:
    """What a choice of tool may call the tools: by name, by type, or by the label of a server."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            yield from (name for key in ("name", "type", "server_label") if isinstance(name := tool.get(key), str))


def _names_one(choice: JSON, gone: set[str]) -> bool:
    """Whether a choice of tool asks for one that is gone."""
    if not isinstance(choice, dict):
        return False
    if isinstance(allowed := choice.get("tools"), list):
        return bool(set(_names(allowed)) & gone - {"function", "custom"})
    return bool(set(_names([choice])) & gone)

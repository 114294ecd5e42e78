"""The harness program of the example: a chat loop with the tools that it is given.

It imports the standard library only, nothing of the engine, and would run against any endpoint that speaks OpenAI's
chat completions and any tool server that speaks MCP over streamable HTTP.

    program.py conversation.json

The conversation is a JSON list of OpenAI messages. OPENAI_BASE_URL and OPENAI_API_KEY lead to the model, the file that
ROLLOUT_MCP_CONFIG names, if it is set, to the tool servers. The last reply goes to standard output. Exit status 1: the
API or a tool server refused or failed, and standard error says so in one line; 2: usage.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A JSON object."""

PROTOCOL = "2025-06-18"
"""The version of MCP that is spoken here."""


class ApiError(Exception):
    """The API, or a tool server, did not answer as it should."""


class ToolServer:
    """A client of one MCP server."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self.headers = {**headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self.asked = 0
        client = {"name": "program.py", "version": "1"}
        self.ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        self.headers["MCP-Protocol-Version"] = PROTOCOL
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self) -> list[Object]:
        """The tools, as the chat API has them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool.get("description", ""),
                    "parameters": tool["inputSchema"],
                },
            }
            for tool in self.ask("tools/list", {})["tools"]
        ]

    def call(self, name: str, arguments: Object) -> str:
        """What a tool answers, in text; what is wrong with a call is its result."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")

    def ask(self, method: str, params: Object) -> Object:
        """The result of a request."""
        self.asked += 1
        for message in self.post({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}):
            if message.get("id") == self.asked:
                if "error" in message:
                    raise ApiError(f"{method}: {message['error'].get('message')}")
                result: Object = message["result"]
                return result
        raise ApiError(f"{method}: no answer")

    def post(self, message: Object) -> list[Object]:
        """What the server says to a message."""
        request = urllib.request.Request(self.url, data=json.dumps(message).encode(), headers=self.headers)
        with urllib.request.urlopen(request) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            if answer.headers.get_content_type() == "text/event-stream":
                return [json.loads(data) for data in events(answer)]
            body = answer.read()
            return [json.loads(body)] if body else []


def events(lines: Iterable[bytes]) -> Iterable[str]:
    """The data of server-sent events."""
    data: list[str] = []
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text.removeprefix("data:").removeprefix(" "))
        elif not text and data:
            if "".join(data):
                yield "\n".join(data)
            data.clear()


class Toolbox:
    """The tools of all servers."""

    def __init__(self, config: str | None) -> None:
        self.offered: list[Object] = []
        self.servers: dict[str, ToolServer] = {}
        for server in self.open(config) if config else ():
            for tool in server.tools():
                self.offered.append(tool)
                self.servers[tool["function"]["name"]] = server

    @staticmethod
    def open(config: str) -> list[ToolServer]:
        """The servers that a file in the usual format names."""
        with open(config, encoding="utf-8") as file:
            named = json.load(file)["mcpServers"]
        return [ToolServer(server["url"], server.get("headers", {})) for server in named.values()]

    def use(self, name: str, arguments: str) -> str:
        """The result of a tool call, or what was wrong with it: the model decides what to do about that."""
        if name not in self.servers:
            return f"Error: there is no tool {name!r}; there is {', '.join(self.servers) or 'none'}"
        try:
            given = json.loads(arguments or "{}")
        except ValueError as error:
            return f"Error: the arguments are no JSON: {error}"
        if not isinstance(given, dict):
            return f"Error: the arguments are no JSON object: {arguments}"
        return self.servers[name].call(name, given)


def ask(messages: list[Object], tools: list[Object]) -> Object:
    """The model's next message. Raises `ApiError`."""
    body: Object = {"model": os.environ.get("OPENAI_MODEL", "default"), "messages": messages}
    if tools:
        body["tools"] = tools
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        reply: Object = json.load(answer)["choices"][0]["message"]
        return reply


def said(error: BaseException) -> str:
    """What went wrong, in a line: what an API says in an error, if it has OpenAI's shape."""
    if not isinstance(error, urllib.error.HTTPError):
        return f"{type(error).__name__}: {error}"
    try:
        return f"HTTP {error.code}: {json.load(error)['error']['message']}"
    except (OSError, ValueError, LookupError, TypeError):
        return f"HTTP {error.code}: {error.reason}"


def main(arguments: list[str]) -> int:
    """Talk to the model until it calls no tool."""
    if len(arguments) != 1:
        sys.stderr.write("usage: program.py conversation.json\n")
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        messages = json.load(file)
    doing = "the tool servers"
    try:
        toolbox = Toolbox(os.environ.get("ROLLOUT_MCP_CONFIG"))
        while True:
            doing = "the model"
            reply = ask(messages, toolbox.offered)
            messages.append(reply)
            calls = reply.get("tool_calls") or []
            if not calls:
                sys.stdout.write(f"{reply.get('content') or ''}\n")
                return 0
            doing = "the tool servers"
            for call in calls:
                result = toolbox.use(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    except (ApiError, OSError, ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"program.py: {doing} did not answer: {said(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A tool server over standard input and output, written against the protocol and nothing else: it starts at once.

`python stdio_server.py MODE…`: `dies` exits with status 3 at start, `mute` says nothing, `deaf` does not exit when its
input ends, `stubborn` nor what it starts when asked to end, `child` starts a child in a session of its own, `daemon`
one that has no environment and no parent either, `noisy` writes lines that are no messages.

Its tool `raw` answers with the line that it is given, in which `%d` is the number of the call.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

TOOLS = {
    "echo": {"text": {"type": "string"}},
    "environment": {"name": {"type": "string"}},
    "count": {},
    "fail": {},
    "exit": {},
    "raw": {"line": {"type": "string"}},
    "wait": {},
    "cancelled": {},
    "pids": {},
}
DAEMON = "setsid env -i sleep 600 >/dev/null 2>&1 & echo $!"
pids = [os.getpid()]
cancelled: list[object] = []


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def state(method: str, body: bytes | None = None, tag: str = "") -> tuple[bytes, str]:
    headers = {"Authorization": f"Bearer {os.environ['ROLLOUT_STATE_SECRET']}", **({"If-Match": tag} if tag else {})}
    request = urllib.request.Request(os.environ["ROLLOUT_STATE_URL"], data=body, headers=headers, method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return answer.read(), answer.headers["ETag"]


def count() -> str:
    body, tag = state("GET")
    known = json.loads(body)
    known["count"] = known.get("count", 0) + 1
    state("PUT", json.dumps(known).encode(), tag)
    return str(known["count"])


def call(name: str, arguments: dict[str, str]) -> tuple[str, bool]:
    match name:
        case "echo":
            return arguments["text"], False
        case "environment":
            return os.environ.get(arguments["name"], "none"), False
        case "count":
            return count(), False
        case "pids":
            return json.dumps(pids), False
        case "cancelled":
            return json.dumps(len(cancelled)), False
        case "exit":
            sys.exit("asked to exit")
    return "it failed", True


def answer(message: dict[str, object]) -> None:
    number, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            version = params["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
            say({"id": number, "result": result})
        case "tools/list":
            listed = [
                {"name": name, "description": name, "inputSchema": {"type": "object", "properties": properties}}
                for name, properties in TOOLS.items()
            ]
            say({"id": number, "result": {"tools": listed}})
        case "tools/call" if params["name"] == "raw":
            sys.stdout.write(params["arguments"]["line"].replace("%d", str(number)) + "\n")
            sys.stdout.flush()
        case "tools/call" if params["name"] != "wait":
            text, failed = call(params["name"], params.get("arguments") or {})
            say({"id": number, "result": {"content": [{"type": "text", "text": text}], "isError": failed}})
        case "notifications/cancelled":
            cancelled.append(params["requestId"])
        case "tools/call":
            return
        case _ if number is not None:
            say({"id": number, "error": {"code": -32601, "message": "unknown"}})


def main(modes: list[str]) -> None:
    if "dies" in modes:
        sys.stderr.write("no index was found\n")
        sys.exit(3)
    if "stubborn" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "daemon" in modes:
        started = subprocess.run(["sh", "-c", DAEMON], stdout=subprocess.PIPE, check=True)
        pids.append(int(started.stdout))
    if "child" in modes:
        pids.append(
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid
        )
    if "noisy" in modes:
        sys.stdout.write("starting up...\n{}\n")
    for line in sys.stdin:
        if "mute" not in modes:
            answer(json.loads(line))
    if "deaf" in modes:
        time.sleep(600)


main(sys.argv[1:])

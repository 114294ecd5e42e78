"""What a client of the proxy asks for, read from the head of its request; and that head as it goes on to the origin.

Knows no socket. The invariant: one reading of a request. Whatever two readers could take for two things (a user in a
URL, a second length, a `Host` that is not the URL's) is refused or replaced, so that nobody behind the proxy
understands it otherwise than the policy did.
"""

import re
from collections.abc import Collection, Iterator
from typing import TypeAlias

import h11
from attrs import frozen

from rollout_fsm.network import Host, endpoint, parse_host, parse_port

HTTP = 80
"""The port of an http URL that names none."""
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^#]*)", re.IGNORECASE)

_OF_ONE_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that are between two neighbours and go no further."""

Headers: TypeAlias = Collection[tuple[bytes, bytes]]


class Rejected(Exception):  # noqa: N818  (an answer to a client, not an event of the proxy's)
    """What a client asked for is not done. `status` and the message are its answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@frozen(kw_only=True)
class Wanted:
    """Where a client wants to be connected to, or have its request sent to."""

    host: Host
    port: int
    path: str | None
    """Path and query of the request that is forwarded; None for a tunnel."""


def wanted(request: h11.Request) -> Wanted:
    """What a request to the proxy asks for. Raises `Rejected` for what a proxy does not do."""
    target = request.target.decode("ascii", "replace")
    if request.method == b"CONNECT":
        host, port = _authority(target, port=None)
        return Wanted(host=host, port=port, path=None)
    url = _URL.fullmatch(target)
    if url is None:
        raise Rejected(400, "this is a proxy: ask it for a whole http:// URL, or CONNECT to a host and port")
    if url["scheme"].lower() != "http":
        raise Rejected(400, f"a {url['scheme']} URL is not fetched for a client: CONNECT to its host and port instead")
    host, port = _authority(url["authority"], port=HTTP)
    path = url["path"]
    return Wanted(host=host, port=port, path=path if path.startswith("/") else f"/{path}")


def onward(request: h11.Request, target: Wanted) -> h11.Request:
    """The request as its origin gets it. Raises `Rejected` for one with two lengths."""
    assert target.path is not None
    names = {name for name, _ in request.headers}
    if names >= {b"transfer-encoding", b"content-length"}:
        raise Rejected(400, "a request has a Content-Length or a Transfer-Encoding, not both")
    host = endpoint(target.host, target.port).removesuffix(f":{HTTP}")
    headers = [(b"host", host.encode()), *_going_on(request.headers, but=(b"host", b"expect"))]
    if b"transfer-encoding" in names:  # h11 knows no other than chunked
        headers.append((b"transfer-encoding", b"chunked"))
    return h11.Request(method=request.method, target=target.path, headers=[*headers, (b"connection", b"close")])


def back(response: h11.Response) -> h11.Response:
    """The response as the client gets it: the only one of its connection."""
    chunked = any(name == b"transfer-encoding" for name, _ in response.headers)
    headers = _going_on(response.headers, but=(b"content-length",) if chunked else ())
    return h11.Response(
        status_code=response.status_code, headers=[*headers, (b"connection", b"close")], reason=response.reason
    )


def _authority(text: str, *, port: int | None) -> tuple[Host, int]:
    """Host and port; `port` is that of an authority which names none."""
    if "@" in text:
        raise Rejected(400, "the proxy takes no user in a URL: send credentials in the Authorization header")
    host, colon, tail = text.rpartition(":")
    if not colon or tail.endswith("]"):
        host, tail = text, ""
    if not host.startswith("[") and ":" in host:
        raise Rejected(400, f"{text!r} is no host and port: an IPv6 address is written in brackets")
    try:
        if tail:
            return parse_host(host), parse_port(tail)
        if port is not None:
            return parse_host(host), port
    except ValueError as error:
        raise Rejected(400, str(error)) from None
    raise Rejected(400, f"{text!r} names no port: CONNECT to a host and port, such as {text}:443")


def _going_on(headers: Headers, *, but: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The headers without those of this connection, which `Connection` may name more of, and some others."""
    listed = b",".join(value for name, value in headers if name == b"connection").lower()
    named = {name.strip() for name in listed.split(b",")} - {b"content-length"}  # without it the body has no end
    left_out = {*_OF_ONE_CONNECTION, *named, *but}
    return ((name, value) for name, value in headers if name not in left_out)

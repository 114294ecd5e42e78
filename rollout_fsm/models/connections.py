"""How a model client's connections are made and kept."""

import ssl
from functools import cache

import httpx2

__all__ = ["CLOSING", "new_client"]

CONNECT = 30.0
"""Seconds for a connection to come about, at most."""

IDLE = 4.0
"""Seconds that an unused connection is kept: less than the 5 after which the field's usual server closes it, so that no
call starts on a connection that is just being closed."""

CLOSING = 5.0
"""Seconds given to open connections to say goodbye."""


def new_client(timeout: float | None) -> httpx2.AsyncClient:
    """A client with as many connections as there are calls. `timeout` is in seconds without a byte."""
    connect = CONNECT if timeout is None else min(CONNECT, timeout)
    return httpx2.AsyncClient(
        verify=_tls(),
        trust_env=False,  # a proxy or a netrc of the machine would change who is asked, and with which key
        timeout=httpx2.Timeout(timeout, connect=connect, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE),
        follow_redirects=False,
    )


@cache
def _tls() -> ssl.SSLContext:
    """Made once: the certificates of the machine take a while to read."""
    return httpx2.create_ssl_context(trust_env=False)

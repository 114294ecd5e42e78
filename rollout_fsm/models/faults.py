"""What went wrong with a model call, as the `ProviderError` that says so. Sans-IO: nothing here opens a socket.

A provider's complaint comes in many shapes; what it says, its codes and the number it gives are read out of any of
them, or the body itself is shown. A fault of the network says what was being done, where, and what to check. Nothing
here shows a key: URLs are shown without credentials and query.
"""

import json
import re
from collections.abc import Iterator, Mapping

from attrs import frozen

from rollout_fsm.errors import OverlongPromptError, ProviderError, leaves
from rollout_fsm.messages import JSON
from rollout_fsm.models.overlong import is_overlong

__all__ = [
    "BrokenError",
    "Complaint",
    "ConnectError",
    "ConnectTimeoutError",
    "EncodingError",
    "HeaderError",
    "NetworkError",
    "SilentError",
    "UrlError",
    "capped",
    "complained",
    "complaint_in",
    "odd_answer",
    "refused",
    "shown_url",
    "unreachable",
]

SHOWN = 2_000
"""How many characters of what a provider said are kept."""

FIRST_BYTES = 200
"""How many bytes of an answer that makes no sense are shown."""

_SAYING = ("title", "message", "msg", "error_message", "detail")
_CODING = ("code", "type", "status", "error_code", "error_type")
_NESTING = ("error", "errors", "detail", "message", "metadata", "innererror", "body")
_HINTS: Mapping[int, str] = {
    401: "check the key",
    403: "check the key and what it may use",
    404: "check the base URL (most end in /v1) and the model's name",
    405: "check the base URL (most end in /v1)",
    429: "run fewer rollouts at once, or let the harness retry",
}
_NUMBERS: Mapping[str, int] = {
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "insufficient_quota": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP statuses of OpenAI's and Anthropic's words, for complaints that come without one, inside a stream say."""

_DEPTH = 4
_STATUS = re.compile(r"[45][0-9][0-9]")


class NetworkError(Exception):
    """What kept a request from being asked, or its answer from being read."""


class UrlError(NetworkError):
    """There is nobody to be asked at such a URL."""


class HeaderError(NetworkError):
    """A header holds what HTTP does not allow."""


class ConnectError(NetworkError):
    """No connection came about."""


class ConnectTimeoutError(NetworkError):
    """No connection came about in time."""


class SilentError(NetworkError):
    """No byte came or went for too long."""


class EncodingError(NetworkError):
    """The body cannot be taken apart."""


class BrokenError(NetworkError):
    """The connection broke, or what came over it is no HTTP."""


@frozen(kw_only=True)
class Complaint:
    """What a provider said: one line or more for people, and its own codes and types."""

    text: str
    codes: tuple[str, ...] = ()
    number: int | None = None
    """An HTTP status that the complaint itself names, where it came with a good one or inside a stream."""


def complained(body: JSON) -> Complaint:
    """The complaint in a JSON body of whatever shape; its own text where no known field holds one."""
    texts = tuple(dict.fromkeys(text for text in _texts(body, 0) if text.strip()))
    codes = tuple(dict.fromkeys(_codes(body, 0)))
    statuses = tuple(code for code in codes if _STATUS.fullmatch(code))
    return Complaint(
        text=": ".join(texts) or _as_json(body),
        codes=tuple(code for code in codes if code not in statuses),
        number=int(statuses[0]) if statuses else None,
    )


def complaint_in(body: Mapping[str, JSON]) -> Complaint | None:
    """The complaint inside an answer that came with a good status, or inside a chunk of a stream; None if it is an
    answer.
    """
    if body.get("error") or body.get("object") == "error" or body.get("type") == "error":
        return complained(dict(body))
    if body.get("type") == "response.failed":
        response = body.get("response")
        return complained(response.get("error") if isinstance(response, dict) else dict(body))
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and first.get("error"):
        return complained(first)
    if "choices" not in body and (body.get("detail") or body.get("errors")):
        return complained(dict(body))
    return None


def refused(status: int, body: bytes, *, url: str, location: str | None = None) -> ProviderError:
    """An answer with an HTTP status that is no success: an `OverlongPromptError` if that is what it says (L21)."""
    text = body.decode("utf-8", "replace").strip()
    try:
        complaint = complained(json.loads(text))
    except (ValueError, RecursionError):
        complaint = Complaint(text=" ".join(text.split()))
    if 300 <= status < 400:
        hint = f"; it redirects to {shown_url(location or 'nowhere')}: make that the base URL"
    else:
        hint = f"; {_HINTS[status]}" if status in _HINTS else ""
    said = capped(complaint.text) or "with no word of explanation"
    codes = f" ({', '.join(complaint.codes)})" if complaint.codes else ""
    return _typed(f"{shown_url(url)} answered {status}{codes}: {said}{hint}", complaint, status)


def odd_answer(what: str, *, url: str, complaint: Complaint | None = None, body: bytes | None = None) -> ProviderError:
    """An answer with a good status that is none: a complaint inside it, not JSON, not the format, or broken off."""
    if complaint is not None:
        codes = f" ({', '.join(complaint.codes)})" if complaint.codes else ""
        meant = (_NUMBERS[code] for code in complaint.codes if code in _NUMBERS)
        status = next(meant, None) if complaint.number is None else complaint.number
        return _typed(f"{shown_url(url)}: {what}{codes}: {capped(complaint.text)}", complaint, status)
    first = (
        "" if body is None else f"; it begins {body[:FIRST_BYTES]!r} ({len(body)} bytes)" if body else "; it is empty"
    )
    return ProviderError(f"{shown_url(url)}: {what}{first}")


def unreachable(error: NetworkError, *, doing: str, url: str, timeout: float | None) -> ProviderError:
    """A fault between here and the provider: no route, refused, reset, broken off, or silent for too long."""
    where = shown_url(url)
    match error:
        case ConnectTimeoutError():
            return ProviderError(f"connecting to {where} timed out: is it running, and can it be reached from here?")
        case SilentError():
            return ProviderError(
                f"{doing} {where} timed out: no byte came or went for {timeout:g} s (`timeout` of the model); "
                "raise it, or stream the answers"
            )
        case ConnectError():
            return ProviderError(
                f"cannot connect to {where}: {_root(error)}; check the base URL and that it is running"
            )
        case UrlError():
            return ProviderError(f"cannot ask {where}: {_root(error)}; check the base URL")
        case HeaderError():
            return ProviderError(f"cannot ask {where}: a header holds what HTTP does not allow; check `headers`")
        case EncodingError():
            return ProviderError(f"{doing} {where} failed: its content encoding is broken: {_root(error)}")
    return ProviderError(f"{doing} {where} failed: the connection broke: {_root(error)}; is the server still alive?")


def shown_url(url: str) -> str:
    """A URL as it may be shown: without credentials, query and fragment."""
    plain = url.split("#", 1)[0].split("?", 1)[0]
    scheme, mark, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else plain


def capped(text: str) -> str:
    """The text, its middle left out if it is long: the complaint stands at one end or the other."""
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def _typed(message: str, complaint: Complaint, status: int | None) -> ProviderError:
    overlong = is_overlong(complaint.text, codes=complaint.codes, status=status)
    return (OverlongPromptError if overlong else ProviderError)(message, status_code=status)


def _texts(value: JSON, depth: int) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() if depth < _DEPTH:
            for item in value[:10]:
                yield from _texts(item, depth + 1)
        case dict() if depth < _DEPTH:
            for name in _SAYING:
                if isinstance(value.get(name), str):
                    yield str(value[name])
            for name in (*_NESTING, "raw"):
                inner = value.get(name)
                if isinstance(inner, dict | list) or (isinstance(inner, str) and name in ("error", "raw")):
                    yield from _texts(inner, depth + 1)


def _codes(value: JSON, depth: int) -> Iterator[str]:
    match value:
        case list() if depth < _DEPTH:
            for item in value[:10]:
                yield from _codes(item, depth + 1)
        case dict() if depth < _DEPTH:
            for name in _NESTING:
                yield from _codes(value.get(name), depth + 1)
            for name in _CODING:
                code = value.get(name)
                if isinstance(code, int) and not isinstance(code, bool):
                    yield str(code)
                elif isinstance(code, str) and code and (name, code) != ("type", "error"):
                    yield code


def _as_json(value: JSON) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "JSON nested without end"


def _root(error: BaseException) -> str:
    """What the operating system or the library said at the bottom of it: the outer messages are often empty."""
    said = str(error)
    seen = {id(error)}
    inner = error.__cause__ or error.__context__
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        parts = list(dict.fromkeys(str(leaf) for leaf in leaves(inner) if str(leaf)))
        said = "; ".join(parts) or said
        inner = inner.__cause__ or inner.__context__
    return " ".join(said.split()) or type(error).__name__

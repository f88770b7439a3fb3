"""Checks of an endpoint: connection, TLS, an empty request, and its clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from ssl import SSLContext
from urllib.parse import urlsplit

from mttp.cli.doctor.findings import SetupFinding, error, ok, warning
from mttp.cli.doctor.targets import SetupTarget
from mttp.otlp.http_client import HttpClient, NoReply, proxy_of
from mttp.otlp.request_errors import Kind, request_error
from mttp.otlp.tls import tls_context
from mttp.pages.words import duration

__all__ = ["clock", "connection", "request", "tls"]

MOST_SKEW = 5.0
"""Seconds between two clocks from which there is a warning."""
_ANSWER_BYTES = 1 << 16
_ADVICE: dict[Kind, str] = {
    "name": "check the address",
    "refused": "is a receiver running there, and is this its port?",
    "timeout": "check the address and firewalls",
    "untrusted": "certificate=FILE in the address names a file of trusted certificates",
    "no_tls": "write http:// or grpc:// instead of https:// or grpcs://, or turn TLS on at the receiver",
    "closed": "check certificates, and whether the receiver uses TLS at this port",
}
_NO_ADVICE = "is a receiver running there?"


def connection(target: SetupTarget, timeout: float) -> Iterator[SetupFinding]:
    """Connect to the endpoint, or to the proxy before it."""
    host, port, through = _place(target)
    begun = time.monotonic()
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError as problem:
        yield _failed("connection", f"{host}:{port}{through}", problem, timeout)
    else:
        yield ok("connection", f"{host}:{port}{through} in {_since(begun)}")


def _place(target: SetupTarget) -> tuple[str, int, str]:
    """Return host and port to connect to, and a word about the proxy if it is one."""
    proxy = proxy_of(urlsplit(target.url)) if target.url else None
    if proxy is None:
        return target.host, target.port, ""
    return str(proxy.hostname), proxy.port or 80, " (a proxy, set in the environment)"


def tls(target: SetupTarget, timeout: float) -> Iterator[SetupFinding]:
    """Do the TLS handshake; with a proxy, the request does it."""
    if not target.secure or (target.url and proxy_of(urlsplit(target.url))):
        return
    begun = time.monotonic()
    try:
        with (
            socket.create_connection((target.host, target.port), timeout) as plain,
            _context(target).wrap_socket(plain, server_hostname=target.host) as wrapped,
        ):
            until = dict(wrapped.getpeercert() or {}).get("notAfter", "an unknown date")
            yield ok("tls", f"{wrapped.version()}, certificate until {until}, in {_since(begun)}")
    except OSError as problem:
        yield _failed("tls", f"{target.host}:{target.port}", problem, timeout)


def _context(target: SetupTarget) -> SSLContext:
    return tls_context() if target.receiver is None else target.receiver.settings.tls()


def request(target: SetupTarget, timeout: float) -> Iterator[SetupFinding]:
    """Send an OTLP request without spans."""
    if target.receiver is None:
        return
    begun = time.monotonic()
    answer = target.receiver.ping(timeout)
    if answer.verdict == "taken":
        said = f", and said: {answer.message}" if answer.message else ""
        yield ok("request", f"{target.name} accepted an empty request in {_since(begun)}{said}")
        return
    problem, _, advice = answer.message.partition("; ")
    yield error("request", f"{target.name}: {problem}", advice or "see the answer of the receiver")


def clock(target: SetupTarget, timeout: float) -> Iterator[SetupFinding]:
    """Compare this machine's clock with the Date header of an answer."""
    if not target.url:
        return
    skew = _skew(target, timeout)
    if skew is None:
        yield ok("clock", f"{target.name} states no time to compare with")
    elif abs(skew) > MOST_SKEW:
        word = "ahead of" if skew > 0 else "behind"
        found = f"this machine's clock is {duration(abs(skew))} {word} that of {target.name}"
        yield warning("clock", found, "synchronize both with NTP: stores place spans by their times")
    else:
        yield ok("clock", f"within {MOST_SKEW:g} s of that of {target.name}")


def _skew(target: SetupTarget, timeout: float) -> float | None:
    """Return by how many seconds this machine's clock is ahead; None if the answer has no date."""
    client = HttpClient(target.url, tls=_context(target) if target.secure else None)
    begun = time.time()
    try:
        reply = client.request(target.url, None, headers={}, timeout=timeout, max_bytes=_ANSWER_BYTES)
        theirs = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except (NoReply, ValueError, TypeError, OverflowError):
        return None
    finally:
        client.close()
    ended = time.time()
    nearest = min(max(theirs + 0.5, begun), ended)  # a date has whole seconds
    return nearest - theirs - 0.5


def _failed(check: str, place: str, problem: OSError, timeout: float) -> SetupFinding:
    found = request_error(problem, timeout)
    return error(check, f"{place}: {found.message}", _ADVICE.get(found.kind, _NO_ADVICE))


def _since(begun: float) -> str:
    return duration(time.monotonic() - begun)

"""The HTTP client: whatever a server, a proxy or a network does, a request ends in time with one outcome."""

from __future__ import annotations

import base64
import gzip
import os
import socket
import ssl
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trustme
from polling import SECONDS
from programs import told
from stores import Answer, Asked, answering, redirecting, serving, talking

import mttp
from mttp.errors import TransportError
from mttp.otlp.http_client import HttpClient, NoReply, Reply
from mttp.testing import OtlpReceiver

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
BIG = b"x" * (32 << 20)
"""More than the buffers of a connection hold."""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names no proxy unless a test does."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Whose certificates the clients trust."""
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """TLS of a client."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def asked(
    url: str,
    *,
    body: bytes | None = b"hello",
    timeout: float = SECONDS,
    max_bytes: int = 1 << 20,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """The reply to one request."""
    client = HttpClient(url, tls=tls)
    try:
        return client.request(url, body, headers=headers or {}, timeout=timeout, max_bytes=max_bytes)
    finally:
        client.close()


def refused(url: str, **options: Any) -> tuple[str, str]:
    """Kind and words of why there is no reply."""
    with pytest.raises(NoReply) as caught:
        asked(url, **options)
    return caught.value.error.kind, str(caught.value)


def silent(connection: socket.socket, over: threading.Event) -> None:
    """Neither read nor write."""
    over.wait()


# Time.


def test_a_server_that_reads_nothing_holds_a_request_no_longer_than_its_time() -> None:
    """
    The body is larger than what the system takes for it.
    """
    with talking(silent) as place:
        found = refused(f"http://{place}", body=BIG, timeout=0.3)

    assert ("timeout", "no answer within 0.3 seconds") == found


def test_a_server_that_reads_slowly_over_tls_holds_a_request_no_longer(authority: trustme.CA) -> None:
    """
    TLS writes record by record, and each of them gets only what is left of the time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def sip(connection: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            while not over.wait(1.0):
                secure.recv(16384)

    with talking(sip) as place:
        found = refused(f"https://{place}", body=BIG, timeout=0.5, tls=trusting(authority))

    assert ("timeout", "no answer within 0.5 seconds") == found


def test_a_handshake_that_never_ends_is_left_at_the_timeout(authority: trustme.CA) -> None:
    """
    A server listens there that does not speak TLS, or does not answer.
    """
    with talking(silent) as place:
        found = refused(f"https://{place}", timeout=0.3, tls=trusting(authority))

    assert ("timeout", "no answer within 0.3 seconds") == found


@pytest.mark.parametrize(
    "written",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Long: "],
    ids=["interim answers", "a header"],
)
def test_an_answer_without_an_end_is_left_at_the_timeout(written: bytes) -> None:
    """
    A server may go on for ever, a little at a time.
    """

    def go_on(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        while not over.wait(0.02):
            connection.sendall(written)

    with talking(go_on) as place:
        kind, _ = refused(f"http://{place}", timeout=0.4)

    assert "timeout" == kind


def test_a_clock_that_is_set_changes_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Time that is left is counted on the monotonic clock.
    """
    jumps = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    with serving(lambda _: (200, "text/plain", b"fine")) as place:
        found = asked(f"http://{place}", timeout=SECONDS)

    assert (200, b"fine") == (found.status, found.body)


# Connections.


def reset(connection: socket.socket) -> None:
    """Break the connection as a system does whose program died."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket, over: threading.Event) -> None:
    """Say that nothing will come, and listen on."""
    connection.shutdown(socket.SHUT_WR)
    over.wait()


def reset_early(connection: socket.socket, over: threading.Event) -> None:
    """Break off within the request."""
    connection.recv(100)
    reset(connection)


@pytest.mark.parametrize(
    ("act", "body"), [(half_close, b"small"), (reset_early, b"small"), (reset_early, BIG)]
)
def test_a_connection_that_breaks_is_tried_once_more(
    act: Callable[[socket.socket, threading.Event], None], body: bytes
) -> None:
    """
    At once, and no more often.
    """
    connections = []

    def counted(connection: socket.socket, over: threading.Event) -> None:
        connections.append(connection)
        act(connection, over)

    with talking(counted) as place:
        found = refused(f"http://{place}", body=body)

    assert (("closed", "the connection was closed without an answer"), 2) == (found, len(connections))


def test_a_server_that_has_heard_enough_is_listened_to() -> None:
    """
    It may answer, and close, before it was sent everything.
    """

    def cut_short(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nless")
        connection.shutdown(socket.SHUT_RDWR)
        time.sleep(0.2)

    with talking(cut_short) as place:
        found = asked(f"http://{place}", body=BIG)

    assert (413, b"less") == (found.status, found.body)


def test_a_reset_within_the_body_leaves_the_status() -> None:
    """
    And what came of the body, with why there is no more.
    """

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\nsome")
        over.wait(0.2)
        reset(connection)

    with talking(answer) as place:
        found = asked(f"http://{place}")

    assert (503, b"some", "7") == (found.status, found.body, found.headers.get("retry-after"))
    assert found.cut is not None
    assert found.cut.kind in ("closed", "cut")


def test_requests_share_a_connection() -> None:
    """
    It is kept open, whatever the body of the answer was.
    """
    ports = set()

    def answer(connection: socket.socket, over: threading.Event) -> None:
        ports.add(connection.getpeername())
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with talking(answer) as place:
        client = HttpClient(f"http://{place}")
        for _ in range(3):
            client.request(f"http://{place}/", None, headers={}, timeout=SECONDS, max_bytes=2)
        client.close()

    assert 1 == len(ports)


def test_a_request_can_be_broken_off() -> None:
    """
    From another thread, and none is sent in its place.
    """
    reached = threading.Event()
    connections = []

    def act(connection: socket.socket, over: threading.Event) -> None:
        connections.append(connection)
        connection.recv(65536)
        reached.set()
        over.wait()

    with talking(act) as place:
        client = HttpClient(f"http://{place}")
        failures: list[NoReply] = []

        def ask() -> None:
            try:
                client.request(f"http://{place}", b"", headers={}, timeout=60, max_bytes=1)
            except NoReply as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert reached.wait(20)
        client.break_off()
        thread.join(SECONDS)

    assert (["closed"], 1) == ([error.error.kind for error in failures], len(connections))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_opens_connections_of_its_own() -> None:
    """
    What it breaks off is its own, and the parent's connection works on.
    """
    clients = set()

    def answer(connection: socket.socket, over: threading.Event) -> None:
        while connection.recv(65536):
            clients.add(connection.getpeername())
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with talking(answer) as place:
        client = HttpClient(f"http://{place}")

        def ask() -> int:
            return client.request(f"http://{place}", b"", headers={}, timeout=SECONDS, max_bytes=10).status

        ask()
        if not (child := os.fork()):
            status = 1
            try:
                status = 0 if ask() == 200 else 1
                client.break_off()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        ask()
        client.close()

    assert (0, 2) == (status, len(clients))


def test_ipv6_is_an_address_like_any_other() -> None:
    """
    In brackets, as URLs have it.
    """
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine", host="::1") as place:
        assert b"fine" == asked(f"http://{place}/v1").body


# Answers.


def test_a_small_answer_that_unpacks_to_much_takes_no_memory() -> None:
    """
    Only what was asked for is decompressed.
    """
    bomb = gzip.compress(bytes(256 << 20))
    kind = "text/plain\r\nContent-Encoding: gzip"
    with serving(lambda _: (200, kind, bomb)) as place:
        tracemalloc.start()
        found = asked(f"http://{place}", max_bytes=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert (1 << 20, "cut") == (len(found.body), found.cut.kind if found.cut else None)
    assert peak < 32 << 20


def test_a_body_that_is_not_what_it_says_is_no_body() -> None:
    """
    The status stands.
    """
    with serving(lambda _: (200, "text/plain\r\nContent-Encoding: gzip", b"no gzip at all")) as place:
        found = asked(f"http://{place}")

    assert (200, b"", True) == (found.status, found.body, found.cut is not None)


@pytest.mark.parametrize(("limit", "is_cut"), [(9, True), (10, False), (11, False)])
def test_a_body_is_read_up_to_the_limit(limit: int, is_cut: bool) -> None:
    """
    And the rest is reported as missing.
    """
    with serving(lambda _: (200, "text/plain", b"0123456789")) as place:
        found = asked(f"http://{place}", max_bytes=limit)

    assert (b"0123456789"[:limit], is_cut) == (found.body, found.cut is not None)


def test_a_redirect_is_not_followed() -> None:
    """
    Credentials are for the place that they were given for; those in its address are not shown.
    """
    with redirecting("https://me:hush@elsewhere.example/v1?api_key=hush") as (place, requests):
        found = asked(f"http://{place}", headers={"authorization": "Bearer x"})

    assert (302, 1) == (found.status, len(requests))
    assert "https://me:hush@elsewhere.example/v1?api_key=hush" == found.location


def test_a_server_that_repeats_credentials_does_not_get_them_into_the_log() -> None:
    """
    Neither whole nor in part, by whatever words it does.
    """
    sent = {"authorization": "Bearer hush-hush", "x-api-key": "sesame1", "tenant": "team"}

    def answer(request: Asked) -> Answer:
        given = request.headers
        return (
            401,
            "text/plain",
            f"{given['authorization'][7:]} {given['x-api-key']} {given['tenant']}".encode(),
        )

    with serving(answer) as place:
        found = asked(f"http://{place}", headers=sent).summary(sent)

    assert "401 Unauthorized: [redacted] [redacted] team" == found


# Proxies.


def test_a_proxy_is_asked_with_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The whole URL, as proxies want it.
    """
    seen: list[bytes] = []

    def proxy(connection: socket.socket, over: threading.Event) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")

    with talking(proxy) as place:
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{place}")
        found = asked("http://nowhere.invalid/v1/traces")

    assert b"fine" == found.body
    assert seen[0].startswith(b"POST http://nowhere.invalid/v1/traces HTTP/1.1\r\n")
    assert base64.b64encode(b"me:p@ss") in seen[0]


def test_tls_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch, authority: trustme.CA) -> None:
    """
    The proxy sees the host and nothing else.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("receiver.example").configure_cert(context)
    seen: list[bytes] = []

    def proxy(connection: socket.socket, over: threading.Event) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secure:
            request = b""
            while not request.endswith(b"hello"):  # closing with an unread body resets the connection
                request += secure.recv(65536)
            seen.append(request)
            secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")

    with talking(proxy) as place:
        monkeypatch.setenv("HTTPS_PROXY", place)
        found = asked(
            "https://receiver.example/v1/traces", headers={"authorization": "hush"}, tls=trusting(authority)
        )

    assert b"fine" == found.body
    assert seen[0].startswith(b"CONNECT receiver.example:443")
    assert b"hush" not in seen[0]
    assert seen[1].startswith(b"POST /v1/traces")


def test_a_proxy_that_opens_a_tunnel_slowly_is_left_at_the_timeout(
    monkeypatch: pytest.MonkeyPatch, authority: trustme.CA
) -> None:
    """
    The time of a request is that of its tunnel too.
    """

    def proxy(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 ")
        while not over.wait(0.02):
            connection.sendall(b"x")

    with talking(proxy) as place:
        monkeypatch.setenv("https_proxy", f"http://{place}")
        kind, _ = refused("https://receiver.example", timeout=0.4, tls=trusting(authority))

    assert "timeout" == kind


def test_a_proxy_that_is_gone_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is the proxy that can't be reached.
    """
    monkeypatch.setenv("all_proxy", "http://me:hush@127.0.0.1:1")

    found = refused("http://nowhere.invalid")

    assert (
        "refused",
        "the proxy 127.0.0.1:1, set in the environment, failed: connection refused",
    ) == found


@pytest.mark.parametrize("exceptions", ["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8, 127.0.0.0/8", "*"])
def test_no_proxy_names_hosts_and_networks(monkeypatch: pytest.MonkeyPatch, exceptions: str) -> None:
    """
    These are asked directly.
    """
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", exceptions)
    with serving(lambda _: (200, "text/plain", b"fine")) as place:
        assert b"fine" == asked(f"http://{place}").body


def test_a_proxy_of_another_kind_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Not a request that goes without.
    """
    monkeypatch.setenv("all_proxy", "socks5://me:hush@somewhere:1080")

    with pytest.raises(
        TransportError, match=r"the proxy socks5://somewhere:1080, set in the environment, is not supported"
    ) as caught:
        HttpClient("http://nowhere.invalid")

    assert "hush" not in str(caught.value)


CLOSES_ALL = """
import os, json, sys
import mttp
session = mttp.configure({address!r}, provenance=False)

def play():
    with mttp.episode(env="a") as episode:
        with episode.step() as step:
            step.reward(1.0)
    return session.flush()

before = play()
os.closerange(3, 256)
files = [open(f"{{number}}", "w+b", buffering=0) for number in range(40)]
for file in files:
    file.write(b"mine")
after = play(), session.close()
for file in files:
    file.write(b"!")
contents = {{open(str(number)).read() for number in range(40)}}
print(json.dumps([before, *after, contents == {{"mine!"}}]))
"""


def test_a_program_that_closes_every_descriptor_keeps_its_next_files() -> None:
    """
    Nothing is written to them, none is closed, and the spans go over a new connection.
    """
    with OtlpReceiver() as receiver:
        found = told(CLOSES_ALL.format(address=receiver.http_address))

        assert [True, True, True, True] == found
        assert 2 == len(mttp.read(receiver))

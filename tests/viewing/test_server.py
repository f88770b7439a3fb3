"""The server of live pages: read-only, for this machine or those with the token, and never another file."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from polling import SECONDS, eventually

import mttp
from mttp.errors import TransportError
from mttp.viewing import server as server_module
from mttp.viewing.live import LivePages
from mttp.viewing.server import serve

OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def pages() -> Iterator[LivePages]:
    """Pages of a recording with one episode."""
    with mttp.configure("file://run.jsonl"), mttp.episode(env="e", task="t") as episode:
        episode.reward(1.0)
    found = LivePages(["run.jsonl"])
    found.start()
    while not len(found):
        time.sleep(0.05)
    yield found
    found.close()


@pytest.fixture
def address(pages: LivePages) -> Iterator[str]:
    server = serve(pages, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def ask(
    url: str, body: object = None, opener: urllib.request.OpenerDirector = OPEN, **headers: str
) -> tuple[int, bytes, Any]:
    """Status, body and headers of the answer."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} | headers)
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def test_every_page_is_served(address: str) -> None:
    """
    With a policy that allows nothing but the server's own script and style.
    """
    for path in ("/", "/app.js", "/app.css", "/api/overview", "/api/version?after=-1"):
        status, body, headers = ask(address + path)

        assert 200 == status, path
        assert body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "nosniff" == headers["X-Content-Type-Options"]


def test_an_episode_is_asked_for_by_its_id(address: str) -> None:
    """
    An unknown one is an error with a sentence.
    """
    query = {"search": "", "filters": [], "sort": "start", "descending": True, "offset": 0, "limit": 10}
    _, body, _ = ask(f"{address}/api/episodes", query)
    trace_id = json.loads(body)["rows"][0][0]

    status, page, _ = ask(f"{address}/api/episodes/{trace_id}")
    assert (200, trace_id) == (status, json.loads(page)["trace_id"])
    status, page, _ = ask(f"{address}/api/episodes/{'0' * 32}")
    assert (404, True) == (status, "there is no episode" in json.loads(page)["error"])


def matching(*patterns: str) -> bytes:
    """Return a query with these regular expressions."""
    filters = [{"column": "task", "operator": "~", "value": pattern} for pattern in patterns]
    return json.dumps({"filters": filters}).encode()


def test_three_regular_expressions_can_be_searched(address: str) -> None:
    """
    The database can't be interrupted while it matches one, so that their number and length are limited.
    """
    status, _, _ = ask(f"{address}/api/episodes", json.loads(matching("a" * 200, "b" * 199, "c")))
    assert 200 == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"offset": -1}',
        b"\xff",
        b'{"search": "' + b"x" * 70_000 + b'"}',
        b'{"limit": NaN}',
        b'{"limit": 1, "limit": 2}',
        b'{"search": "\\ud800"}',
        b'{"filters": ' + b"[" * 60_000,
        b'{"filters": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"limit": ' + b"9" * 60_000 + b"}",
        matching(*["a"] * 4),
        matching("a" * 201),
        matching(*["a" * 150] * 3),
    ],
)
def test_a_wrong_query_is_answered_400(address: str, body: bytes) -> None:
    """
    With what is wrong.
    """
    status, answer, _ = ask(f"{address}/api/episodes", body)

    assert 400 == status
    assert json.loads(answer)["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../run.jsonl",
        "/run.jsonl",
        "/..%2frun.jsonl",
        "/api/episodes/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/etc/passwd",
        "/index.html",
        "/api",
    ],
)
def test_no_request_reads_a_file(address: str, path: str) -> None:
    """
    Also not the recording itself.
    """
    status, body, _ = ask(address + path)

    assert 404 == status
    assert b"resourceSpans" not in body
    assert b"root:" not in body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_nothing_can_be_changed(address: str, method: str) -> None:
    """
    Only queries are posted.
    """
    request = urllib.request.Request(f"{address}/api/overview", b"{}", method=method)

    with pytest.raises(urllib.error.HTTPError, match="405"):
        OPEN.open(request, timeout=SECONDS)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"]
)
def test_another_name_of_this_machine_is_refused(address: str, host: str) -> None:
    """
    A page of another site must not read recordings by a name that leads here.
    """
    status, body, _ = ask(f"{address}/api/overview", Host=host)

    assert status in (400, 403)
    assert b"sections" not in body


@pytest.mark.parametrize(
    ("expected", "headers"),
    [
        (200, {}),
        (200, {"Content-Type": "application/json; charset=utf-8"}),
        (200, {"Origin": "{own}", "Sec-Fetch-Site": "same-origin"}),
        (200, {"Sec-Fetch-Site": "none"}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "{own}", "Sec-Fetch-Site": "same-site"}),
        (403, {"Sec-Fetch-Site": "cross-site"}),
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Type": "application/x-www-form-urlencoded"}),
    ],
)
def test_only_the_page_itself_and_tools_search(address: str, expected: int, headers: dict[str, str]) -> None:
    """
    A page of another site can send text without asking, but no JSON, and its browser names it.
    """
    named = {name: value.format(own=address) for name, value in headers.items()}

    assert expected == ask(f"{address}/api/episodes", {"limit": 1}, **named)[0]


def test_pages_of_other_sites_cost_nothing_by_links(address: str) -> None:
    """
    Only the page itself asks for overviews and episodes; a link to the page works from anywhere.
    """
    foreign = {"Sec-Fetch-Site": "cross-site"}

    assert 403 == ask(f"{address}/api/overview", **foreign)[0]
    assert 403 == ask(f"{address}/api/episodes/{'0' * 32}", **foreign)[0]
    assert 200 == ask(f"{address}/", **foreign)[0]


def test_a_search_that_takes_too_long_is_interrupted(
    pages: LivePages, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The answer says so, and the next search is answered.
    """
    search = pages.episodes

    def endless(query: Any) -> Any:
        with pages._index.snapshot(is_search=True) as database:
            return database.rows("SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) % 7 = 3")

    monkeypatch.setattr(server_module, "_LONGEST_SEARCH", 0.2)
    monkeypatch.setattr(pages, "episodes", endless)
    status, body, headers = ask(f"{address}/api/episodes", {})
    assert (503, True) == (status, "took more than 0.2 s" in json.loads(body)["error"])
    assert headers["Retry-After"]

    monkeypatch.undo()
    assert search == pages.episodes
    assert 200 == ask(f"{address}/api/episodes", {"limit": 1})[0]


def test_a_search_waits_for_another_only_so_long(
    pages: LivePages, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One at a time; who waits too long is asked to come again.
    """
    began, goes_on = threading.Event(), threading.Event()

    def slow(query: Any) -> Any:
        began.set()
        assert goes_on.wait(SECONDS)
        return {}

    monkeypatch.setattr(server_module, "_LONGEST_WAIT", 0.1)
    monkeypatch.setattr(pages, "episodes", slow)
    first: list[int] = []
    asking = threading.Thread(target=lambda: first.append(ask(f"{address}/api/episodes", {})[0]))
    asking.start()
    assert began.wait(SECONDS)
    second = ask(f"{address}/api/episodes", {})[0]
    goes_on.set()
    asking.join(SECONDS)

    assert (503, [200]) == (second, first)


@pytest.mark.parametrize("after", ["--5", "x", "9" * 5000])
def test_a_wrong_version_is_answered_400(address: str, after: str) -> None:
    """
    It is a number of a few digits.
    """
    assert 400 == ask(f"{address}/api/version?after={after}")[0]


def test_with_a_token_only_its_holder_is_answered(pages: LivePages) -> None:
    """
    The address with the token is exchanged for a cookie that scripts can't read.
    """
    server = serve(pages, "0.0.0.0", 0, token="secret")
    address = f"http://127.0.0.1:{server.port}"
    holder = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar := CookieJar())
    )

    assert [401] * 3 == [ask(address + path)[0] for path in ("/", "/api/overview", "/?token=guess")]
    assert 200 == ask(f"{address}/?token=secret", opener=holder)[0]
    assert 200 == ask(f"{address}/api/overview", opener=holder)[0]
    assert [True] == [one.has_nonstandard_attr("HttpOnly") for one in jar]
    server.close()


def test_a_change_is_told_at_once(pages: LivePages, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The request waits for the next version, and no longer.
    """
    monkeypatch.setattr(server_module, "_LONGEST_POLL", 3600.0)
    assert eventually(lambda: pages._diagnoses)  # the diagnosis after the first reading is a change, too
    assert eventually(lambda: not pages.is_studying)
    version = json.loads(ask(f"{address}/api/version?after=-1")[1])["version"]
    answers: list[int] = []
    waiting = threading.Thread(
        target=lambda: answers.append(json.loads(ask(f"{address}/api/version?after={version}")[1])["version"])
    )
    waiting.start()
    assert [] == answers
    with mttp.configure("file://other.jsonl"), mttp.episode(env="e"):
        pass
    with Path("run.jsonl").open("ab") as file:
        file.write(Path("other.jsonl").read_bytes())
    waiting.join(SECONDS)

    assert version < answers[0]


def test_the_server_ends_while_requests_wait(pages: LivePages, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It does not sit out the longest wait.
    """
    monkeypatch.setattr(server_module, "_LONGEST_POLL", 3600.0)
    polled = threading.Event()
    version = LivePages.version.fget
    monkeypatch.setattr(LivePages, "version", property(lambda pages: polled.set() or version(pages)))
    server = serve(pages, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}/api/version?after=1000000"
    waiting = threading.Thread(target=lambda: ask(url))
    waiting.start()
    assert polled.wait(SECONDS)
    server.close()
    waiting.join(SECONDS)

    assert not waiting.is_alive()


def test_a_port_in_use_is_an_error(pages: LivePages) -> None:
    """
    With the port.
    """
    server = serve(pages, "127.0.0.1", 0)
    with pytest.raises(TransportError, match=f"can't listen on 127.0.0.1, port {server.port}"):
        serve(pages, "127.0.0.1", server.port)
    server.close()


def test_an_overview_that_takes_long_is_told_later(
    pages: LivePages, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first answer has no sections yet; a higher version says that they are there.
    """
    made, go = pages._made, threading.Event()

    def waits(picked: tuple[str, ...]) -> dict[str, Any]:
        go.wait(SECONDS)
        return made(picked)

    monkeypatch.setattr(pages, "_made", waits)
    pages._overviews.clear()
    first = json.loads(ask(f"{address}/api/overview")[1])
    version = pages.version
    go.set()
    told = json.loads(ask(f"{address}/api/version?after={version}")[1])
    second = json.loads(ask(f"{address}/api/overview")[1])

    assert [] == first["sections"]
    assert told["version"] > version
    assert "summary" in {section["id"] for section in second["sections"]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("update?run=r&index=-1", 400),
        ("update?run=r&index=a", 400),
        ("update?run=r&index=0", 404),
        ("overview?" + "&".join(f"run={number}" for number in range(201)), 400),
    ],
)
def test_what_names_no_update_or_too_many_runs_is_refused(address: str, path: str, status: int) -> None:
    """
    With a sentence.
    """
    found, body, _ = ask(f"{address}/api/{path}")

    assert status == found
    assert json.loads(body)["error"]

"""Serves the pages of growing recordings over HTTP, on loopback unless told otherwise; writes only labels."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mttp.errors import ConfigureError, MissingExtra, MttpError
from mttp.otlp import app_server
from mttp.otlp.app_server import AppServer
from mttp.viewing.html import asset, view_html
from mttp.viewing.live import LivePages, Picked

if TYPE_CHECKING:
    from mttp.viewing.labeling import Labeling

try:
    from anyio import move_on_after
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    from mttp.viewing.labels import label_routes
except ImportError as error:
    raise MissingExtra(package="starlette and uvicorn", extra="view", purpose="mttp view") from error

__all__ = ["is_loopback", "serve"]

_LONGEST_POLL = 20.0
_POLL_SECONDS = 0.25
_MOST_BODY = 1 << 16
_LONGEST_SEARCH = 10.0
_LONGEST_WAIT = 15.0
"""Seconds that a request waits for those before it: longer than one search."""
_LONGEST_LEFT = 1.0
"""Seconds that a search goes on after its client sends no more: it may have only closed its half."""
_CHECK_SECONDS = 0.05
_COOKIE = "mttp_view"
_VERSION = re.compile(r"|-?[0-9]{1,18}")
_INDEX = re.compile(r"[0-9]{1,18}")
_LONGEST_OVERVIEW = 0.5
"""Seconds after which an older overview is the answer."""
_MOST_PICKED = 200
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Handler = Callable[[Request], Awaitable[Response]]


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach that host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def serve(
    pages: LivePages, host: str, port: int, *, token: str | None = None, labels: Labeling | None = None
) -> AppServer:
    """
    Serve the pages; with a `token`, to those who open `/?token=TOKEN` once.

    With `labels`, pages may add to them.
    Raises TransportError if the port can't be listened on.
    """
    app = _app(pages, host, token, labels)
    return AppServer(app, host, port, name="mttp-view-server", on_close=pages.stop)


def _app(pages: LivePages, host: str, token: str | None, labels: Labeling | None) -> Starlette:
    summing_up, searching, reading = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
    overviews: dict[Picked, asyncio.Future[dict[str, Any]]] = {}

    async def newest_overview(picked: Picked) -> dict[str, Any]:
        async with summing_up:
            return await run_in_threadpool(pages.overview, picked)

    async def overview(request: Request) -> Response:
        """Answer with the newest overview, or with the last one if that takes long; pages then ask again."""
        picked = _picked(request)
        if picked not in overviews:
            overviews[picked] = asyncio.ensure_future(newest_overview(picked))
            overviews[picked].add_done_callback(lambda _: overviews.pop(picked))
        task = overviews[picked]
        # A reader who picks runs waits for them: what was there before is of other runs.
        if (await asyncio.wait({task}, timeout=None if picked else _LONGEST_OVERVIEW))[0]:
            return _json(task.result())
        task.add_done_callback(lambda _: pages.tell())
        return _json(await run_in_threadpool(pages.overview_so_far))

    async def update(request: Request) -> Response:
        run_id, index = (request.query_params.get(name, "") for name in ("run", "index"))
        if not _INDEX.fullmatch(index):
            raise ConfigureError(f"index={index[:40]!r}: give the index of an update")
        return _json(await run_in_threadpool(pages.update, run_id, int(index)))

    async def episodes(request: Request) -> Response:
        query = await _query(request)
        await _wait_for(searching)
        search = asyncio.ensure_future(_found(pages, query, request, searching))
        search.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        # The database compiles an expensive expression to its end; its client need not wait for that.
        if not (await asyncio.wait({search}, timeout=_LONGEST_SEARCH + _LONGEST_LEFT))[0]:
            raise _too_long()
        return _json(search.result())

    async def episode(request: Request) -> Response:
        await _wait_for(reading)
        try:
            return _json(await run_in_threadpool(pages.episode, request.path_params["trace_id"]))
        finally:
            reading.release()

    async def version(request: Request) -> Response:
        return _json({"version": await _next_version(pages, request.query_params.get("after", ""))})

    async def page(_: Request) -> Response:
        text = view_html("mttp", "" if labels is None else labels.token)
        return Response(text, media_type="text/html", headers=_HEADERS)

    async def script(_: Request) -> Response:
        return Response(asset("app.js"), media_type="text/javascript", headers=_HEADERS)

    async def style(_: Request) -> Response:
        return Response(asset("app.css"), media_type="text/css", headers=_HEADERS)

    def guarded(handler: Handler) -> Handler:
        return _guarded(handler, host, token)

    routes = [
        Route("/", guarded(page)),
        Route("/app.js", guarded(script)),
        Route("/app.css", guarded(style)),
        Route("/api/overview", guarded(overview)),
        Route("/api/update", guarded(update)),
        Route("/api/episodes", guarded(episodes), methods=["POST"]),
        Route("/api/episodes/{trace_id}", guarded(episode)),
        Route("/api/version", guarded(version)),
    ]
    if labels is not None:
        routes += label_routes(labels, guarded, _query, _json)
    return Starlette(routes=routes)


def _guarded(handler: Handler, host: str, token: str | None) -> Handler:
    """The handler behind checks of host, origin and token; errors become answers."""

    async def answer(request: Request) -> Response:
        if is_loopback(host) and not is_loopback(_host_name(request)):
            # A page of another site whose name leads to this machine must not read recordings.
            return PlainTextResponse("unknown host", 403, headers=_HEADERS)
        try:
            if request.url.path.startswith("/api/"):
                _check_origin(request)
            if token is not None and not _has_token(request.cookies.get(_COOKIE, ""), token):
                return _with_token(request, token)
            return await handler(request)
        except HTTPException as error:
            return _json({"error": error.detail}, error.status_code, error.headers)
        except ClientDisconnect:
            return _json({"error": "the request is not complete"}, 400)
        except MttpError as error:
            return _json({"error": str(error)}, 400 if isinstance(error, ConfigureError) else 404)

    return answer


def _host_name(request: Request) -> str:
    """The name by which the client knows this server; empty if it is not valid."""
    try:
        return request.url.hostname or ""
    except ValueError:
        return ""


def _check_origin(request: Request) -> None:
    """
    Raise HTTPException for what a page of another site can send without asking first.

    Browsers say where a request comes from; tools need not, but those that do are checked, too.
    """
    address = f"{request.url.scheme}://{request.headers.get('host', '')}".lower()
    origins, sites = request.headers.getlist("origin"), request.headers.getlist("sec-fetch-site")
    if any(origin.lower() != address for origin in origins):
        raise HTTPException(403, f"requests of pages of other sites are refused; this one is {address}")
    if any(site.lower() not in ("same-origin", "none") for site in sites):
        raise HTTPException(403, "requests of pages of other sites are refused")
    if request.method != "POST":
        return
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_tool = not (media_type or origins or sites)
    if media_type != "application/json" and not is_tool:
        raise HTTPException(415, "a query needs the header Content-Type: application/json")


def _picked(request: Request) -> Picked:
    """Return the ids of the runs that a request names; raises ConfigureError for too many."""
    picked = (*dict.fromkeys(request.query_params.getlist("run")),)
    if len(picked) > _MOST_PICKED:
        raise ConfigureError(f"there are {len(picked):,} runs; give at most {_MOST_PICKED}")
    return picked


async def _wait_for(lock: asyncio.Lock) -> None:
    """Acquire the lock; raises HTTPException if other requests hold it for too long."""
    with move_on_after(_LONGEST_WAIT) as waiting:
        await lock.acquire()
    if waiting.cancelled_caught:
        raise _unavailable("other requests are still being answered; try again later")


async def _found(
    pages: LivePages, query: Mapping[str, Any], request: Request, lock: asyncio.Lock
) -> dict[str, Any]:
    """
    The rows of a query, which is interrupted after some seconds, or if nobody waits for its answer.

    Releases the lock when the database is at rest.
    """
    loop, connection = asyncio.get_running_loop(), request.state.connection
    started = loop.time()
    search = asyncio.ensure_future(run_in_threadpool(pages.episodes, query))
    reason: HTTPException | None = None
    try:
        while not (await asyncio.wait({search}, timeout=_CHECK_SECONDS))[0]:
            if pages.is_stopping or loop.time() > max(started, connection.ended) + _LONGEST_LEFT:
                reason = _unavailable("the search was ended")
            elif loop.time() > started + _LONGEST_SEARCH:
                reason = _too_long()
            if reason is not None:
                pages.interrupt()
    finally:
        lock.release()
    if reason is not None and search.exception():
        raise reason
    return search.result()


def _too_long() -> HTTPException:
    return _unavailable(f"the search took more than {_LONGEST_SEARCH:g} s; give fewer words and filters")


def _unavailable(reason: str) -> HTTPException:
    return HTTPException(503, reason, {"Retry-After": f"{_LONGEST_SEARCH:.0f}"})


def _has_token(text: str, token: str) -> bool:
    return hmac.compare_digest(text.encode(), token.encode())


def _with_token(request: Request, token: str) -> Response:
    """Exchange the token of the address for a cookie."""
    if not _has_token(request.query_params.get("token", ""), token):
        return PlainTextResponse(
            "open the address with ?token= that mttp view printed", 401, headers=_HEADERS
        )
    response = RedirectResponse("/", 303, headers=_HEADERS)
    response.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
    return response


async def _query(request: Request) -> dict[str, Any]:
    """The query of a request's body; raises ConfigureError if it is none."""
    body = b""
    with move_on_after(app_server.BODY_SECONDS) as reading:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BODY:
                raise ConfigureError(f"the query is longer than {_MOST_BODY:,} bytes")
    if reading.cancelled_caught:
        raise HTTPException(408, f"the query took more than {app_server.BODY_SECONDS:g} s")
    try:
        query = msgspec.json.decode(body, type=dict[str, Any])
        json.loads(body, object_pairs_hook=_unique)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigureError(f"the query is not a JSON object: {error}") from error
    return query


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is repeated")
    return members


async def _next_version(pages: LivePages, after: str) -> int:
    """The version, as soon as it is higher than `after`, or after some seconds."""
    if not _VERSION.fullmatch(after):
        raise ConfigureError(f"after={after[:40]!r}: give a version")
    known = int(after or -1)
    for _ in range(int(_LONGEST_POLL / _POLL_SECONDS)):
        if pages.version > known or pages.is_stopping:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return pages.version


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    named = {**_HEADERS, **(headers or {})}
    return Response(msgspec.json.encode(value), status, media_type="application/json", headers=named)

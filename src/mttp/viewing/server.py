"""Serves the pages of growing recordings over HTTP: read-only, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mttp.errors import ConfigureError, MissingExtra, MttpError
from mttp.otlp import app_server
from mttp.otlp.app_server import AppServer
from mttp.viewing.html import asset, view_html
from mttp.viewing.live import LivePages

try:
    from anyio import move_on_after
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra(package="starlette and uvicorn", extra="view", purpose="mttp view") from error

__all__ = ["is_loopback", "serve"]

_LONGEST_POLL = 20.0
_POLL_SECONDS = 0.25
_MOST_BODY = 1 << 16
_COOKIE = "mttp_view"
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


def serve(pages: LivePages, host: str, port: int, *, token: str | None = None) -> AppServer:
    """
    Serve the pages; with a `token`, to those who open `/?token=TOKEN` once.

    Raises TransportError if the port can't be listened on.
    """
    return AppServer(_app(pages, host, token), host, port, name="mttp-view-server", on_close=pages.stop)


def _app(pages: LivePages, host: str, token: str | None) -> Starlette:
    async def overview(_: Request) -> Response:
        return _json(await run_in_threadpool(pages.overview))

    async def episodes(request: Request) -> Response:
        query = await _query(request)
        return _json(await run_in_threadpool(pages.episodes, query))

    async def episode(request: Request) -> Response:
        return _json(await run_in_threadpool(pages.episode, request.path_params["trace_id"]))

    async def version(request: Request) -> Response:
        return _json({"version": await _next_version(pages, request.query_params.get("after", ""))})

    async def page(_: Request) -> Response:
        return Response(view_html("mttp"), media_type="text/html", headers=_HEADERS)

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
        Route("/api/episodes", guarded(episodes), methods=["POST"]),
        Route("/api/episodes/{trace_id}", guarded(episode)),
        Route("/api/version", guarded(version)),
    ]
    return Starlette(routes=routes)


def _guarded(handler: Handler, host: str, token: str | None) -> Handler:
    """The handler behind checks of host and token; errors become answers."""

    async def answer(request: Request) -> Response:
        if is_loopback(host) and not is_loopback(request.url.hostname or ""):
            # A page of another site whose name leads to this machine must not read recordings.
            return PlainTextResponse("unknown host", 403, headers=_HEADERS)
        if token is not None and not _has_token(request.cookies.get(_COOKIE, ""), token):
            return _with_token(request, token)
        try:
            return await handler(request)
        except MttpError as error:
            return _json({"error": str(error)}, 400 if isinstance(error, ConfigureError) else 404)

    return answer


def _has_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


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
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigureError(f"the query is not a JSON object: {error}") from error


async def _next_version(pages: LivePages, after: str) -> int:
    """The version, as soon as it is higher than `after`, or after some seconds."""
    known = int(after) if after.lstrip("-").isdecimal() else -1
    for _ in range(int(_LONGEST_POLL / _POLL_SECONDS)):
        if pages.version > known or pages.is_stopping:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return pages.version


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json", headers=_HEADERS)

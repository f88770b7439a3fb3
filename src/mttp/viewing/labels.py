"""Labels over HTTP: the queue, scores, notes and preferences of one person, sent by this server's pages."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mttp.errors import ConfigureError

if TYPE_CHECKING:
    from mttp.viewing.labeling import Labeling

__all__ = ["label_routes"]

TOKEN_HEADER = "X-Mttp-Token"
_TRACE_ID = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
_MOST_SKIPPED = 1_000
_LONGEST_NOTE = 10_000

Handler = Callable[[Request], Awaitable[Response]]


class _Next(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skipped: Annotated[list[_TRACE_ID], msgspec.Meta(max_length=_MOST_SKIPPED)] = []


class _Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    episode: _TRACE_ID
    draw: Annotated[str, msgspec.Meta(max_length=40)] = ""
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    note: Annotated[str, msgspec.Meta(max_length=_LONGEST_NOTE)] | None = None
    best: bool = False


class _Undo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


def label_routes(
    labels: Labeling,
    guarded: Callable[[Handler], Handler],
    body_of: Callable[[Request], Awaitable[Mapping[str, Any]]],
    answer: Callable[[object], Response],
) -> list[Route]:
    """
    Return the routes of labels.

    `guarded` checks host and origin, `body_of` returns a request's JSON object, and `answer` a response.
    """

    async def asked(request: Request, kind: type[Any]) -> Any:
        _check_token(request, labels.token)
        try:
            return msgspec.convert(await body_of(request), kind)
        except msgspec.ValidationError as error:
            raise ConfigureError(f"the label is not valid: {error}") from error

    async def overview(_: Request) -> Response:
        return answer(await run_in_threadpool(labels.overview))

    async def current(request: Request) -> Response:
        return answer(await run_in_threadpool(labels.of, request.path_params["trace_id"]))

    async def following(request: Request) -> Response:
        queue = await asked(request, _Next)
        return answer(await run_in_threadpool(labels.next, queue.skipped))

    async def add(request: Request) -> Response:
        label = await asked(request, _Label)
        if (label.score is not None) + (label.note is not None) + label.best != 1:
            raise ConfigureError("the label is not valid: give one of score, note and best")
        named = {"draw": label.draw, "score": label.score, "note": label.note, "best": label.best}
        return answer(await run_in_threadpool(lambda: labels.label(label.episode, **named)))

    async def undo(request: Request) -> Response:
        await asked(request, _Undo)
        return answer(await run_in_threadpool(labels.undo))

    return [
        Route("/api/labels", guarded(overview)),
        Route("/api/labels", guarded(add), methods=["POST"]),
        Route("/api/labels/next", guarded(following), methods=["POST"]),
        Route("/api/labels/undo", guarded(undo), methods=["POST"]),
        Route("/api/labels/{trace_id}", guarded(current)),
    ]


def _check_token(request: Request, token: str) -> None:
    """Raise HTTPException for a request that no page of this server sent."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a label needs the header Content-Type: application/json")
    header = request.headers.get(TOKEN_HEADER, "")
    if not hmac.compare_digest(header.encode(), token.encode()):
        raise HTTPException(403, f"a label needs this server's token in the header {TOKEN_HEADER}")

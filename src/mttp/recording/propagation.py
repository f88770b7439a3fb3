"""
An episode across threads, processes and hosts: what is current, written into a carrier and taken up again.

A carrier is a mapping of text, such as HTTP headers or environment variables.
It holds `traceparent` and `baggage` as the W3C defines them.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, overload
from urllib.parse import quote, unquote

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import ParamSpec

from mttp.recording.configuration import current_session, recorded, recording_session
from mttp.recording.current import current_episode, current_step, current_trajectory
from mttp.recording.episode_context import AgentContext, EpisodeContext, StepContext
from mttp.recording.handle import detach
from mttp.recording.open_agent import OpenAgent
from mttp.recording.remote_episode import RemoteEpisode

__all__ = ["KEYS", "bind_context", "extract", "inject"]

KEYS = {
    "run_id": "mttp.carrier.run_id",
    "episode_id": "mttp.carrier.episode_id",
    "group": "mttp.carrier.group",
    "root": "mttp.carrier.root",
    "next_index": "mttp.carrier.next_index",
    "agent_id": "mttp.carrier.agent_id",
    "agent": "mttp.carrier.agent",
    "step_index": "mttp.carrier.step_index",
    "step": "mttp.carrier.step",
}
"""Our entries of the baggage: root, agent and step are the ids of these spans."""

BAGGAGE_BYTES = 8192
"""What a baggage holds at most, by the W3C's rules."""
ENTRY_BYTES = 4096
"""What OpenTelemetry's propagator reads of one entry at most."""

_TRACE = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()
_HEADERS = ("traceparent", "tracestate", "baggage")
_SPAN_ID = re.compile("[0-9a-f]{16}")
_INDEX = re.compile("[0-9]{1,18}")


class Settable(Protocol):
    """What takes items of text by name: a dict, headers, `os.environ`."""

    def __setitem__(self, name: str, value: str, /) -> None:
        """Take one."""


_C = TypeVar("_C", bound=Settable)
_P = ParamSpec("_P")
_T = TypeVar("_T")


# Out of this process.


@overload
def inject(carrier: None = None, *, environment: bool = False) -> dict[str, str]: ...


@overload
def inject(carrier: _C, *, environment: bool = False) -> _C: ...


@recorded(lambda carrier=None, **_: {} if carrier is None else carrier)
def inject(carrier: Settable | None = None, *, environment: bool = False) -> Settable:
    """
    Write where the current episode, step and agent are into `carrier`; it is returned.

    `carrier` is anything that takes items of text by name, by default a new dict.
    In `os.environ`, and with `environment`, names are those of environment variables: upper case.
    Where nothing is current, nothing is written.
    """
    carrier = {} if carrier is None else carrier
    try:
        where = _whereabouts()
        for name, value in ({} if where is None else _headers(where)).items():
            carrier[name.upper() if environment or carrier is os.environ else name] = value
    except Exception as error:
        _fault(f"nothing can be written into {type(carrier).__name__}: {error!r:.200}")
    return carrier


def _whereabouts() -> EpisodeContext | None:
    trajectory, step = current_trajectory(), current_step()
    if not trajectory:
        return None
    episode = current_episode()
    here = step if step and step._owner is trajectory else None
    at = (here or trajectory)._span_context
    ambient = trace.get_current_span().get_span_context()
    return EpisodeContext(
        run_id=episode.run_id,
        episode_id=episode.id,
        group=episode.group,
        root=episode._root,
        ambient=ambient if ambient.trace_id == at.trace_id else at,
        next_index=trajectory._updated()._next_index,
        agent=AgentContext(trajectory.id, trajectory._span_context)
        if isinstance(trajectory, OpenAgent)
        else None,
        step=None if here is None else StepContext(here.index, here._span_context),
        baggage={name: value for name, value in baggage.get_all().items() if name not in KEYS.values()},
    )


def _headers(where: EpisodeContext) -> dict[str, str]:
    entries = {KEYS[name]: quote(text, safe="") for name, text in _entries(where).items()}
    headers = _propagated(where, entries)
    if all(f"{key}=" in headers.get("baggage", "") for key in entries):
        return headers
    _fault(f"the ids of episode, group and agent don't fit into a baggage of {BAGGAGE_BYTES} bytes")
    return _propagated(where, {})


def _propagated(where: EpisodeContext, entries: Mapping[str, str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    context = trace.set_span_in_context(trace.NonRecordingSpan(where.ambient), Context())
    for name, value in {**entries, **where.baggage}.items():  # ours first: the last may not fit
        context = baggage.set_baggage(name, value, context)
    _TRACE.inject(headers, context)
    _BAGGAGE.inject(headers, context)
    if "baggage" in headers:
        headers["baggage"] = _bounded(headers["baggage"])
    return headers


def _bounded(header: str) -> str:
    """What of a baggage others take: older propagators write more than they read."""
    kept = ""
    for entry in header.split(","):
        longer = f"{kept},{entry}" if kept else entry
        if len(entry) <= ENTRY_BYTES and len(longer) <= BAGGAGE_BYTES:
            kept = longer
    return kept


def _entries(where: EpisodeContext) -> dict[str, str]:
    entries = {"run_id": where.run_id, "root": _hex(where.root), "next_index": str(where.next_index)}
    if where.episode_id != f"{where.root.trace_id:032x}":
        entries["episode_id"] = where.episode_id
    if where.group is not None:
        entries["group"] = where.group
    if where.agent is not None:
        entries |= {"agent_id": where.agent.id, "agent": _hex(where.agent.span)}
    if where.step is not None:
        entries |= {"step_index": str(where.step.index), "step": _hex(where.step.span)}
    return entries


def _hex(span: SpanContext) -> str:
    return f"{span.span_id:016x}"


# Into this process.


@recorded(lambda *_, **__: RemoteEpisode(None))
def extract(
    carrier: Mapping[str, str] | Iterable[tuple[Any, Any]] | None = None, *, flush: bool = False
) -> RemoteEpisode:
    """
    Go on with the episode that `carrier` tells of; by default the environment variables do.

    The handle is a context manager, sync and async, and in its block the episode is the current one.
    Leaving the block, or `end`, closes this process's part of the episode.
    With `flush` that waits until the part is written, for at most a second: for a worker that may be killed
    once it has answered.
    Where the carrier tells of no episode the handle is inert; one that is malformed is counted as a fault.
    `carrier` is a mapping, or an iterable of pairs, whatever the case of its names.
    """
    try:
        where = _read(_named(os.environ if carrier is None else carrier))
    except Exception as error:
        known = isinstance(error, _NonsenseError)
        _fault(str(error) if known else f"{type(carrier).__name__}: {error!r:.200}")
        return RemoteEpisode(None)
    session = None if where is None else recording_session()
    return RemoteEpisode(None) if session is None or where is None else session._join(where, flush=flush)


class _NonsenseError(ValueError):
    """A carrier that holds something of the right name that is malformed."""


def _named(carrier: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """The headers that matter, by lower-case name; one that comes in several pieces is put together."""
    items: Any = carrier.items() if hasattr(carrier, "items") else carrier
    found: dict[str, list[str]] = {}
    for name, value in items:
        key = _text(name).lower() if isinstance(name, (str, bytes)) else ""
        if key in _HEADERS:
            found.setdefault(key, []).append(_text(value))
    if len(set(found.get("traceparent", ()))) > 1:
        raise _NonsenseError("there are several traceparents")
    return {key: ",".join(dict.fromkeys(values)) for key, values in found.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise _NonsenseError(f"a header is {type(value).__name__}, not text")
    return value


def _read(headers: Mapping[str, str]) -> EpisodeContext | None:
    """Where the carrier says to go on; None where it tells of no episode of ours."""
    if len(headers.get("baggage", "")) > BAGGAGE_BYTES:
        raise _NonsenseError(f"the baggage is longer than {BAGGAGE_BYTES} bytes")
    ambient = trace.get_current_span(_TRACE.extract(headers, Context())).get_span_context()
    found = baggage.get_all(_BAGGAGE.extract(headers, Context()))
    if headers.get("baggage") and not found:
        raise _NonsenseError(f"the baggage can't be read: {headers['baggage']:.80}")
    if "traceparent" in headers and not ambient.is_valid:
        raise _NonsenseError(f"the traceparent can't be read: {headers['traceparent']:.80}")
    ours = {name: unquote(str(found[key])) for name, key in KEYS.items() if key in found}
    if not ours:
        return None
    if not ambient.is_valid:
        raise _NonsenseError("the baggage tells of an episode, and there is no traceparent")
    return _checked(ours, ambient, {key: value for key, value in found.items() if key not in KEYS.values()})


def _checked(ours: Mapping[str, str], ambient: SpanContext, rest: Mapping[str, object]) -> EpisodeContext:
    if not ours.get("run_id"):
        raise _NonsenseError("the baggage does not say which run")
    stepping, playing = "step" in ours or "step_index" in ours, "agent" in ours or "agent_id" in ours
    return EpisodeContext(
        run_id=ours["run_id"],
        episode_id=ours.get("episode_id") or f"{ambient.trace_id:032x}",
        group=ours.get("group"),
        root=_span(ours, "root", ambient),
        ambient=ambient,
        next_index=_index(ours, "next_index"),
        agent=AgentContext(ours.get("agent_id", ""), _span(ours, "agent", ambient)) if playing else None,
        step=StepContext(_index(ours, "step_index"), _span(ours, "step", ambient)) if stepping else None,
        baggage=rest,
    )


def _span(ours: Mapping[str, str], name: str, ambient: SpanContext) -> SpanContext:
    written = ours.get(name, "")
    if not _SPAN_ID.fullmatch(written) or not int(written, 16):
        raise _NonsenseError(f"{written!r:.40} is no span's id: the baggage's {KEYS[name]}")
    return SpanContext(ambient.trace_id, int(written, 16), is_remote=True, trace_flags=ambient.trace_flags)


def _index(ours: Mapping[str, str], name: str) -> int:
    written = ours.get(name, "")
    if not _INDEX.fullmatch(written):
        raise _NonsenseError(f"{written!r:.40} is no index: the baggage's {KEYS[name]}")
    return int(written)


def _fault(detail: str) -> None:
    session = current_session()
    if session is not None:
        session._fault("carrier_invalid", detail)


# Along with a function.


@recorded(lambda function: function)
def bind_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """
    `function` with what is current now: call it in another thread, task or process, as often as you like.

    In this process it runs in today's context.
    In another it records a part of the episode of its own, closed and written out when it returns.
    It can be pickled where `function` can; a coroutine function stays one.
    """
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return _CarriedCoroutine(function)  # type: ignore[return-value]  # its call is a coroutine of the same
    return _Carried(function)


class _Carried(Generic[_P, _T]):
    """A function, and the context that it runs in."""

    def __init__(self, function: Callable[_P, _T], carrier: Mapping[str, str] | None = None) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._carrier: Mapping[str, str] = inject() if carrier is None else carrier
        self._context = otel_context.get_current() if carrier is None else None
        self._pid = os.getpid()

    @property
    def _is_home(self) -> bool:
        """Whether this is the process that the context is of."""
        return self._context is not None and self._pid == os.getpid()

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self._is_home:
            token = otel_context.attach(self._context or Context())
            try:
                return self._function(*args, **kwargs)
            finally:
                detach(token)
        with extract(self._carrier, flush=True):
            return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, dict(self._carrier))

    def __repr__(self) -> str:
        return f"<carried {self._function!r}>"


class _CarriedCoroutine(_Carried[..., Any]):
    """A coroutine function, and the context that it runs in."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_home:
            token = otel_context.attach(self._context or Context())
            try:
                return await self._function(*args, **kwargs)
            finally:
                detach(token)
        async with extract(self._carrier, flush=True):
            return await self._function(*args, **kwargs)

"""
Propagation of the current episode across threads, processes and hosts.

A carrier is a mapping of texts, such as HTTP headers or environment variables, with the W3C's `traceparent`
and `baggage`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, overload
from urllib.parse import quote, unquote

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import ParamSpec

from mttp.model.interrupts import raise_interrupt
from mttp.recording.configuration import current_session, never_raises, recording_session
from mttp.recording.current import current_episode, current_step, current_trajectory
from mttp.recording.handle import detach
from mttp.recording.open_agent import OpenAgent
from mttp.recording.remote_episode import EpisodeContext, RemoteEpisode

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
"""mttp's baggage entries; root, agent and step are span ids."""

BAGGAGE_BYTES = 8192
"""The W3C's limit of a baggage."""
ENTRY_BYTES = 4096
"""The limit of one entry that OpenTelemetry's propagator reads."""

_TRACE = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()
_HEADERS = ("traceparent", "tracestate", "baggage")
_SPAN_ID = re.compile("[0-9a-f]{16}")
_INDEX = re.compile("[0-9]{1,18}")


class Settable(Protocol):
    """A carrier that takes texts by name: a dict, headers, `os.environ`."""

    def __setitem__(self, name: str, value: str, /) -> None:
        """Set one item."""


_C = TypeVar("_C", bound=Settable)
_P = ParamSpec("_P")
_T = TypeVar("_T")


# Inject.


@overload
def inject(carrier: None = None, *, environment: bool = False) -> dict[str, str]: ...


@overload
def inject(carrier: _C, *, environment: bool = False) -> _C: ...


@never_raises(lambda carrier=None, **_: {} if carrier is None else carrier)
def inject(carrier: Settable | None = None, *, environment: bool = False) -> Settable:
    """
    Write the current episode, agent and step into `carrier`, and return it.

    `carrier` is any object that takes texts by name, by default a new dict.
    For `os.environ`, and with `environment`, names are those of environment variables, in upper case.
    Without a current episode nothing is written.
    """
    carrier = {} if carrier is None else carrier
    try:
        episode_context = _current_context()
        for name, value in ({} if episode_context is None else _headers(episode_context)).items():
            carrier[name.upper() if environment or carrier is os.environ else name] = value
    except Exception as error:
        raise_interrupt(error)
        _fault(f"can't write into {type(carrier).__name__}: {error!r:.200}")
    return carrier


def _current_context() -> EpisodeContext | None:
    trajectory, step = current_trajectory(), current_step()
    if not trajectory:
        return None
    episode = current_episode()
    own_step = step if step and step._owner is trajectory else None
    innermost = (own_step or trajectory)._span_context
    ambient = trace.get_current_span().get_span_context()
    return EpisodeContext(
        run_id=episode.run_id,
        episode_id=episode.id,
        group=episode.group,
        root=episode._root,
        ambient=ambient if ambient.trace_id == innermost.trace_id else innermost,
        next_index=trajectory._updated()._next_index,
        agent=(trajectory.id, trajectory._span_context) if isinstance(trajectory, OpenAgent) else None,
        step=None if own_step is None else (own_step.index, own_step._span_context),
        baggage={name: value for name, value in baggage.get_all().items() if name not in KEYS.values()},
    )


def _headers(episode_context: EpisodeContext) -> dict[str, str]:
    entries = {KEYS[name]: quote(text, safe="") for name, text in _entries(episode_context).items()}
    headers = _propagated(episode_context, entries)
    if all(f"{key}=" in headers.get("baggage", "") for key in entries):
        return headers
    _fault(f"the ids of episode, group and agent are longer than a baggage of {BAGGAGE_BYTES} bytes")
    return _propagated(episode_context, {})


def _propagated(episode_context: EpisodeContext, entries: Mapping[str, str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    context = trace.set_span_in_context(trace.NonRecordingSpan(episode_context.ambient), Context())
    items = {**entries, **episode_context.baggage}  # mttp's first, because the last may not fit
    for name, value in items.items():
        context = baggage.set_baggage(name, value, context)
    _TRACE.inject(headers, context)
    _BAGGAGE.inject(headers, context)
    if "baggage" in headers:
        headers["baggage"] = _bounded(headers["baggage"])
    return headers


def _bounded(header: str) -> str:
    """Return the entries of a baggage that propagators read; older ones write more than they read."""
    bounded = ""
    for entry in header.split(","):
        longer = f"{bounded},{entry}" if bounded else entry
        if len(entry) <= ENTRY_BYTES and len(longer) <= BAGGAGE_BYTES:
            bounded = longer
    return bounded


def _entries(episode_context: EpisodeContext) -> dict[str, str]:
    entries = {
        "run_id": episode_context.run_id,
        "root": f"{episode_context.root.span_id:016x}",
        "next_index": str(episode_context.next_index),
    }
    if episode_context.episode_id != f"{episode_context.root.trace_id:032x}":
        entries["episode_id"] = episode_context.episode_id
    if episode_context.group is not None:
        entries["group"] = episode_context.group
    if episode_context.agent is not None:
        entries |= {"agent_id": episode_context.agent[0], "agent": f"{episode_context.agent[1].span_id:016x}"}
    if episode_context.step is not None:
        index, span = episode_context.step
        entries |= {"step_index": str(index), "step": f"{span.span_id:016x}"}
    return entries


# Extract.


@never_raises(lambda *_, **__: RemoteEpisode(None))
def extract(
    carrier: Mapping[str, str] | Iterable[tuple[Any, Any]] | None = None, *, flush: bool = False
) -> RemoteEpisode:
    """
    Continue the episode that `carrier` names, by default the environment variables.

    The handle is a context manager, sync and async; in its block the episode is the current one.
    The end of the block, or `end`, ends this process's part of the episode.
    With `flush` the end waits until the part is written, for at most a second; use it in a worker that may
    be killed after its response.
    Without an episode in the carrier the handle is inert; a malformed carrier is the fault carrier_invalid.
    `carrier` is a mapping or an iterable of pairs; the case of names does not matter.
    """
    try:
        episode_context = _read(_propagation_headers(os.environ if carrier is None else carrier))
    except Exception as error:
        raise_interrupt(error)
        known = isinstance(error, _MalformedCarrierError)
        _fault(str(error) if known else f"{type(carrier).__name__}: {error!r:.200}")
        return RemoteEpisode(None)
    session = None if episode_context is None else recording_session()
    if session is None or episode_context is None:
        return RemoteEpisode(None)
    return session._continue_episode(episode_context, flush=flush)


class _MalformedCarrierError(ValueError):
    """A carrier with a malformed entry."""


def _propagation_headers(carrier: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """Return the propagation headers by lower-case name; a repeated header is joined with commas."""
    items: Any = carrier.items() if hasattr(carrier, "items") else carrier
    headers: dict[str, list[str]] = {}
    for name, value in items:
        key = _text(name).lower() if isinstance(name, (str, bytes)) else ""
        if key in _HEADERS:
            headers.setdefault(key, []).append(_text(value))
    if len(set(headers.get("traceparent", ()))) > 1:
        raise _MalformedCarrierError("there are several traceparent headers")
    return {key: ",".join(dict.fromkeys(values)) for key, values in headers.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise _MalformedCarrierError(f"a header is {type(value).__name__}, not text")
    return value


def _read(headers: Mapping[str, str]) -> EpisodeContext | None:
    """Return the episode context of a carrier; None without mttp's entries."""
    if len(headers.get("baggage", "")) > BAGGAGE_BYTES:
        raise _MalformedCarrierError(f"the baggage is longer than {BAGGAGE_BYTES} bytes")
    ambient = trace.get_current_span(_TRACE.extract(headers, Context())).get_span_context()
    items = baggage.get_all(_BAGGAGE.extract(headers, Context()))
    if headers.get("baggage") and not items:
        raise _MalformedCarrierError(f"the baggage can't be read: {headers['baggage']:.80}")
    if "traceparent" in headers and not ambient.is_valid:
        raise _MalformedCarrierError(f"the traceparent can't be read: {headers['traceparent']:.80}")
    entries = {name: unquote(str(items[key])) for name, key in KEYS.items() if key in items}
    if not entries:
        return None
    if not ambient.is_valid:
        raise _MalformedCarrierError("the baggage names an episode, but there is no traceparent")
    return _episode_context(
        entries, ambient, {key: value for key, value in items.items() if key not in KEYS.values()}
    )


def _episode_context(
    entries: Mapping[str, str], ambient: SpanContext, rest: Mapping[str, object]
) -> EpisodeContext:
    if not entries.get("run_id"):
        raise _MalformedCarrierError(f"the baggage has no {KEYS['run_id']}")
    return EpisodeContext(
        run_id=entries["run_id"],
        episode_id=entries.get("episode_id") or f"{ambient.trace_id:032x}",
        group=entries.get("group"),
        root=_span(entries, "root", ambient),
        ambient=ambient,
        next_index=_index(entries, "next_index"),
        agent=(entries.get("agent_id", ""), _span(entries, "agent", ambient))
        if entries.keys() & {"agent", "agent_id"}
        else None,
        step=(_index(entries, "step_index"), _span(entries, "step", ambient))
        if entries.keys() & {"step", "step_index"}
        else None,
        baggage=rest,
    )


def _span(entries: Mapping[str, str], name: str, ambient: SpanContext) -> SpanContext:
    text = entries.get(name, "")
    if not _SPAN_ID.fullmatch(text) or not int(text, 16):
        raise _MalformedCarrierError(f"{text!r:.40} is not a span id: {KEYS[name]} in the baggage")
    return SpanContext(ambient.trace_id, int(text, 16), is_remote=True, trace_flags=ambient.trace_flags)


def _index(entries: Mapping[str, str], name: str) -> int:
    text = entries.get(name, "")
    if not _INDEX.fullmatch(text):
        raise _MalformedCarrierError(f"{text!r:.40} is not an index: {KEYS[name]} in the baggage")
    return int(text)


def _fault(detail: str) -> None:
    session = current_session()
    if session is not None:
        session._fault("carrier_invalid", detail)


# Functions.


@never_raises(lambda function: function)
def bind_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """
    Return `function` bound to the current context, to be called in other threads, tasks or processes.

    In this process each call runs in the bound context. In another process each call records a part of the
    episode, which is ended and written when the call returns.
    The result can be pickled if `function` can; a coroutine function stays a coroutine function.
    """
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return _BoundCoroutine(function)  # type: ignore[return-value]  # its call returns a coroutine
    return _BoundFunction(function)


class _BoundFunction(Generic[_P, _T]):
    """A function with the context in which it runs."""

    def __init__(self, function: Callable[_P, _T], carrier: Mapping[str, str] | None = None) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._carrier: Mapping[str, str] = inject() if carrier is None else carrier
        self._context = otel_context.get_current() if carrier is None else None
        self._pid = os.getpid()

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Run the block in the context in its process, and elsewhere in a part of the episode."""
        if self._context is None or self._pid != os.getpid():
            with extract(self._carrier, flush=True):
                yield
            return
        token = otel_context.attach(self._context)
        try:
            yield
        finally:
            detach(token)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._within():
            return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, dict(self._carrier))

    def __repr__(self) -> str:
        return f"<bound {self._function!r}>"


class _BoundCoroutine(_BoundFunction[..., Any]):
    """A coroutine function with the context in which it runs."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._within():
            return await self._function(*args, **kwargs)

"""Model calls while a reward is computed; they belong to the scoring and are not steps of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from opentelemetry import trace

from mttp.codec.plain import plain
from mttp.model import clock
from mttp.model.call_log import CallLog, context_with, current_log
from mttp.model.episodes import Call
from mttp.otlp.spans import error_message, qualified_name
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY, current

__all__ = ["LoggedCall", "log_here"]

context_with(current)


def log_here() -> CallLog | None:
    """Return the log of the running reward component, or None where an episode or step started inside it."""
    log = current_log()
    if log is None:
        return None
    here, outer = current(), log.context
    if outer is not None and any(here.get(key) is not outer.get(key) for key in (TRAJECTORY_KEY, STEP_KEY)):
        return None
    return log


class LoggedCall:
    """A model call that is logged as a value when it ends; it has the methods of an `OpenCall`."""

    span = trace.INVALID_SPAN

    def __init__(self, log: CallLog, call: Call) -> None:
        self._log = log
        self._call = replace(call, start_time=clock.wall())
        self._is_logged = False
        log.begun.append(self)
        self._before_end: Callable[[], object] | None = None
        """Called before the end, for a response that is still streaming."""

    def __bool__(self) -> bool:
        """Return False: a logged call has no span that could be a parent."""
        return False

    def response(self, *, model: str | None, finish_reasons: Sequence[str], **facts: Any) -> None:
        """Set the facts of the response."""
        self._call = replace(self._call, response_model=model, finish_reasons=tuple(finish_reasons), **facts)

    def exchange(self, **messages: Any) -> None:
        """Set `arguments`, the messages of the request, or `result`, those of the answer; they are copied."""
        copied: dict[str, Any] = {name: plain(value, []) for name, value in messages.items()}
        self._call = replace(self._call, **copied)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self.log(error)

    def log(self, error: BaseException | None = None) -> None:
        """Add the call to the log, once."""
        if self._is_logged:
            return
        self._is_logged = True
        if self._before_end is not None:
            self._before_end()
        failed: dict[str, Any] = {}
        if error is not None:
            failed = {"error_type": qualified_name(error), "error_message": error_message(error)}
        self._log.calls.append(replace(self._call, end_time=clock.wall(), **failed))

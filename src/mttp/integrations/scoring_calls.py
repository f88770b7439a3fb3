"""Calls of models while a reward is computed: they belong to the scoring, and are no steps of the policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from opentelemetry import trace

from mttp.model.episodes import Call
from mttp.otlp.spans import error_message, qualified_name
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY, current
from mttp.rewards.call_log import CallLog, context_with, current_log

__all__ = ["LoggedCall", "log_here"]

context_with(current)


def log_here() -> CallLog | None:
    """The log of the component that is being called, unless an episode or a step began within it."""
    log = current_log()
    if log is None:
        return None
    here, around = current(), log.context
    if around is not None and any(here.get(key) is not around.get(key) for key in (TRAJECTORY_KEY, STEP_KEY)):
        return None
    return log


class LoggedCall:
    """A call of a model that is logged as a value once it is over; it takes what an `OpenCall` takes."""

    span = trace.INVALID_SPAN

    def __init__(self, log: CallLog, call: Call) -> None:
        self._log = log
        self._call = replace(call, start_time=time.time_ns())
        self._is_logged = False
        log.begun.append(self)
        self._before_end: Callable[[], object] | None = None
        """Called ahead of the end: for an answer that is still coming in."""

    def __bool__(self) -> bool:
        """Whether it has a span that others can be children of."""
        return False

    def response(self, *, model: str | None, finish_reasons: Sequence[str], **facts: Any) -> None:
        """What the model's answer says about itself."""
        self._call = replace(self._call, response_model=model, finish_reasons=tuple(finish_reasons), **facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self.log(error)

    def log(self, error: BaseException | None = None) -> None:
        """Add the call to the log's, as it is by now, unless it was added."""
        if self._is_logged:
            return
        self._is_logged = True
        if self._before_end is not None:
            self._before_end()
        failed: dict[str, Any] = {}
        if error is not None:
            failed = {"error_type": qualified_name(error), "error_message": error_message(error)}
        self._log.calls.append(replace(self._call, end_time=time.time_ns(), **failed))

"""Calls the user's span processors, and catches their errors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from mttp.codec.plain import scalar_text
from mttp.errors import ConfigureError
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt

__all__ = ["Observers", "checked"]


def checked(processors: Sequence[object]) -> list[SpanProcessor]:
    """Return the span processors; raises ConfigureError for an object that is not one."""
    for processor in processors:
        if isinstance(processor, type) or not callable(getattr(processor, "on_end", None)):
            raise ConfigureError(
                f"{processor!r} is not a span processor; pass one, for example "
                "processors=[BatchSpanProcessor(exporter)], or pass an exporter to exporters=[...]"
            )
    return cast("list[SpanProcessor]", list(processors))


class Observers:
    """
    Calls span processors in order; an error of one is counted as a fault, and the others are called.

    Processors of the SDK ignore timeouts and wait for an unreachable collector, so each is flushed and shut
    down on a thread of its own.
    """

    def __init__(
        self,
        processors: Sequence[SpanProcessor],
        fault: Callable[[str, str], None],
        view: Callable[[ReadableSpan], ReadableSpan] | None = None,
    ) -> None:
        """`view` redacts an ended span for the processors, by default not at all."""
        self._view = view
        self._processors: list[SpanProcessor] = []
        self._fault = fault
        self._is_closing = threading.Event()
        self._shutdown_threads: list[tuple[SpanProcessor, threading.Thread]] = []
        for processor in processors:
            self.add(processor)

    def add(self, processor: SpanProcessor) -> None:
        """Add a span processor."""
        self._processors.append(processor)
        thread = self._thread(self._shut_down, processor)
        with contextlib.suppress(RuntimeError):
            thread.start()  # now, because none can start at the interpreter's exit
        self._shutdown_threads.append((processor, thread))

    @property
    def processors(self) -> tuple[SpanProcessor, ...]:
        """The span processors, in order."""
        return tuple(self._processors)

    def started(self, span: object, context: Context | None = None) -> None:
        """Call `on_start`; a processor may set attributes on the span."""
        for processor in self._processors:
            self._call(processor, "on_start", span, parent_context=context)

    def ending(self, span: object) -> None:
        """Call `_on_ending`, before any processor gets the ended span."""
        for processor in self._processors:
            if hasattr(processor, "_on_ending"):  # older processors lack it
                self._call(processor, "_on_ending", span)

    def ended(self, span: ReadableSpan) -> None:
        """Call `on_end` with the redacted span; if redaction fails, no processor gets it."""
        if self._view is not None and self._processors:
            try:
                span = self._view(span)
            except Exception as error:
                raise_interrupt(error)
                self._fault("withholding_failed", type(error).__name__)
                return
        for processor in self._processors:
            self._call(processor, "on_end", span)

    def flush(self, timeout: float) -> bool:
        """Flush all processors; returns whether all finished within `timeout` seconds."""
        millis = max(int(timeout * 1000), 0)
        return self._wait(
            [self._start(self._call, each, "force_flush", millis) for each in self._processors], timeout
        )

    def close(self, timeout: float) -> bool:
        """Shut down and remove all processors; returns whether all finished within `timeout` seconds."""
        self._processors = []
        self._is_closing.set()
        threads = [
            thread if thread.is_alive() else self._start(self._shut_down, processor)  # a fork has ended it
            for processor, thread in self._shutdown_threads
        ]
        self._shutdown_threads = []
        return self._wait(threads, timeout)

    def after_fork_in_child(self) -> None:
        """Replace the event, whose lock a thread of the parent may have held."""
        self._is_closing = threading.Event()

    def _shut_down(self, processor: SpanProcessor) -> None:
        self._is_closing.wait()
        self._call(processor, "shutdown")

    def _call(self, processor: SpanProcessor, method: str, *args: Any, **kwargs: Any) -> None:
        try:
            getattr(processor, method)(*args, **kwargs)
        except Exception as error:
            raise_interrupt(error)
            self._fault("processor_failed", f"{type(processor).__name__}.{method}: {scalar_text(error)}")

    def _start(self, call: Callable[..., None], *args: Any) -> threading.Thread:
        thread = self._thread(call, *args)
        try:
            thread.start()
        except RuntimeError:  # at the interpreter's exit
            call(*args)
        return thread

    def _thread(self, call: Callable[..., None], *args: Any) -> threading.Thread:
        return threading.Thread(target=call, args=args, name="mttp-processor", daemon=True)

    def _wait(self, threads: Sequence[threading.Thread], timeout: float) -> bool:
        deadline = clock.seconds() + timeout
        for thread in threads:
            if thread.is_alive():
                thread.join(max(deadline - clock.seconds(), 0.0))
        return not any(thread.is_alive() for thread in threads)

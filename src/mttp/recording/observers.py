"""Users' own span processors: they see spans start and end, and can't harm them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from mttp.codec.plain import scalar_text
from mttp.errors import ConfigureError

__all__ = ["Observers", "checked"]


def checked(processors: Sequence[object]) -> list[SpanProcessor]:
    """The given span processors; raises ConfigureError for an object that is none."""
    for processor in processors:
        if isinstance(processor, type) or not callable(getattr(processor, "on_end", None)):
            raise ConfigureError(
                f"{processor!r} is no span processor; make one, as in "
                "processors=[BatchSpanProcessor(exporter)], or give an exporter to exporters=[...]"
            )
    return cast("list[SpanProcessor]", list(processors))


class Observers:
    """
    Calls span processors in order; one that raises is counted as a fault, and the others are called.

    The SDK's ignore every timeout and wait for a dead collector, so each is flushed and released on a thread
    of its own.
    """

    def __init__(
        self,
        processors: Sequence[SpanProcessor],
        fault: Callable[[str, str], None],
        view: Callable[[ReadableSpan], ReadableSpan] | None = None,
    ) -> None:
        """`view` is a span that has ended as they may see it, by default the span itself."""
        self._view = view
        self._processors: list[SpanProcessor] = []
        self._fault = fault
        self._over = threading.Event()
        self._releasing: list[tuple[SpanProcessor, threading.Thread]] = []
        for processor in processors:
            self.add(processor)

    def add(self, processor: SpanProcessor) -> None:
        """Have one more look on."""
        self._processors.append(processor)
        thread = self._thread(self._release, processor)
        with contextlib.suppress(RuntimeError):
            thread.start()  # now: at the interpreter's end, where sessions are closed too, none can be
        self._releasing.append((processor, thread))

    @property
    def processors(self) -> tuple[SpanProcessor, ...]:
        """They, in order."""
        return tuple(self._processors)

    def started(self, span: object, context: Context | None = None) -> None:
        """A span has started within a context; a processor may set attributes on it."""
        for processor in self._processors:
            self._tell(processor, "on_start", span, parent_context=context)

    def ending(self, span: object) -> None:
        """A span takes nothing more, and no processor has seen it end so far."""
        for processor in self._processors:
            if hasattr(processor, "_on_ending"):  # not every class that is used as one has it
                self._tell(processor, "_on_ending", span)

    def ended(self, span: ReadableSpan) -> None:
        """A span has ended; if the content filter fails, no processor sees it."""
        if self._view is not None and self._processors:
            try:
                span = self._view(span)
            except Exception as error:
                self._fault("withholding_failed", type(error).__name__)
                return
        for processor in self._processors:
            self._tell(processor, "on_end", span)

    def flush(self, timeout: float) -> bool:
        """Have them hand on what they hold; whether they did within `timeout` seconds in all."""
        millis = max(int(timeout * 1000), 0)
        return self._wait(
            [self._start(self._tell, each, "force_flush", millis) for each in self._processors], timeout
        )

    def close(self, timeout: float) -> bool:
        """Release them, who see nothing from here on; whether all were within `timeout` seconds in all."""
        self._processors = []
        self._over.set()
        threads = [
            thread if thread.is_alive() else self._start(self._release, processor)  # it is gone after a fork
            for processor, thread in self._releasing
        ]
        self._releasing = []
        return self._wait(threads, timeout)

    def after_fork_in_child(self) -> None:
        """Go on where those threads are gone, and one may have held the event's lock."""
        self._over = threading.Event()

    def _release(self, processor: SpanProcessor) -> None:
        self._over.wait()
        self._tell(processor, "shutdown")

    def _tell(self, processor: SpanProcessor, what: str, *args: Any, **kwargs: Any) -> None:
        try:
            getattr(processor, what)(*args, **kwargs)
        except Exception as error:
            self._fault("processor_failed", f"{type(processor).__name__}.{what}: {scalar_text(error)}")

    def _start(self, call: Callable[..., None], *args: Any) -> threading.Thread:
        thread = self._thread(call, *args)
        try:
            thread.start()
        except RuntimeError:  # the interpreter's end
            call(*args)
        return thread

    def _thread(self, call: Callable[..., None], *args: Any) -> threading.Thread:
        return threading.Thread(target=call, args=args, name="mttp-processor", daemon=True)

    def _wait(self, threads: Sequence[threading.Thread], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        for thread in threads:
            if thread.is_alive():
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

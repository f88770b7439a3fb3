"""Users' own span processors: they see spans start and end, and can't harm them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

__all__ = ["Observers"]


class Observers:
    """Calls span processors in order; one that raises is counted as a fault, and the others are called."""

    def __init__(self, processors: Sequence[SpanProcessor], fault: Callable[[str, str], None]) -> None:
        self._processors = list(processors)
        self._fault = fault

    def add(self, processor: SpanProcessor) -> None:
        """Have one more look on."""
        self._processors.append(processor)

    def started(self, span: object, context: Context | None = None) -> None:
        """A span has started; a processor may set attributes on it."""
        for processor in self._processors:
            with self._guarded(processor, "on_start"):
                processor.on_start(span, context)  # type: ignore[arg-type]  # ours has all that theirs has

    def ended(self, span: ReadableSpan) -> None:
        """A span has ended."""
        for processor in self._processors:
            with self._guarded(processor, "on_end"):
                processor.on_end(span)

    def flush(self, timeout: float) -> None:
        """Have them hand on what they hold, within `timeout` seconds in all."""
        self._call("force_flush", timeout)

    def close(self, timeout: float) -> None:
        """Release them, within `timeout` seconds in all."""
        self._call("shutdown", timeout)

    def _call(self, what: str, timeout: float) -> None:
        """The SDK's processors ignore every timeout and wait for a dead collector: on another thread."""
        if not self._processors:
            return
        waiter = threading.Thread(target=self._call_all, args=(what,), name=f"mttp-{what}", daemon=True)
        try:
            waiter.start()
        except RuntimeError:  # at the interpreter's end there is no thread to be had
            self._call_all(what)
        else:
            waiter.join(timeout)

    def _call_all(self, what: str) -> None:
        for processor in self._processors:
            with self._guarded(processor, what):
                getattr(processor, what)()

    @contextlib.contextmanager
    def _guarded(self, processor: SpanProcessor, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._fault("processor_failed", f"{type(processor).__name__}.{what}: {error!r}")

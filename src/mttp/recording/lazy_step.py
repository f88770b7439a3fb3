"""`LazyStep`, which creates a step's handle when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import Span, SpanContext
from opentelemetry.util.types import AnyValue

from mttp.recording.open_step import OpenStep

__all__ = ["LazyStep"]


class LazyStep(Span):
    """
    Represents a step in the context, as its span and as its handle, until either is used.

    The step's handle is created on first use, because most steps end unused.
    """

    def __init__(self, open: Callable[[], OpenStep]) -> None:
        self.open = open
        """Returns the step's handle; an inert one after the step has ended."""

    def is_recording(self) -> bool:
        """Return True."""
        return True

    def get_span_context(self) -> SpanContext:
        """Return the context of the step's span."""
        return self.open().span.get_span_context()

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set an attribute of the step's span."""
        self.open().span.set_attribute(key, value)

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set attributes of the step's span."""
        self.open().span.set_attributes(attributes)

    def add_event(self, *args: Any, **kwargs: Any) -> None:
        """Add an event to the step's span."""
        self.open().span.add_event(*args, **kwargs)

    def add_link(self, *args: Any, **kwargs: Any) -> None:
        """Add a link to the step's span."""
        self.open().span.add_link(*args, **kwargs)

    def update_name(self, name: str) -> None:
        """Rename the step's span."""
        self.open().span.update_name(name)

    def set_status(self, *args: Any, **kwargs: Any) -> None:
        """Set the status of the step's span."""
        self.open().span.set_status(*args, **kwargs)

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        """Record an exception on the step's span."""
        self.open().span.record_exception(*args, **kwargs)

    def end(self, end_time: int | None = None) -> None:
        """End the step's span."""
        self.open().span.end(end_time)

"""A step of which there is no handle yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import Span, SpanContext
from opentelemetry.util.types import AnyValue

from mttp.recording.open_step import OpenStep

__all__ = ["LazyStep"]


class LazyStep(Span):
    """
    Stands in the context for a step, as its span and as its handle, until either is used.

    Only then is there such a step: most are over without having been asked for.
    """

    def __init__(self, open: Callable[[], OpenStep]) -> None:
        self.open = open
        """Gives the step's handle; an inert one where it is over."""

    def is_recording(self) -> bool:
        """Whether it takes anything."""
        return True

    def get_span_context(self) -> SpanContext:
        """Identity for children and links."""
        return self.open().span.get_span_context()

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """As the step's span does; so do the methods below."""
        self.open().span.set_attribute(key, value)

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set attributes."""
        self.open().span.set_attributes(attributes)

    def add_event(self, *args: Any, **kwargs: Any) -> None:
        """Add an event."""
        self.open().span.add_event(*args, **kwargs)

    def add_link(self, *args: Any, **kwargs: Any) -> None:
        """Add a link."""
        self.open().span.add_link(*args, **kwargs)

    def update_name(self, name: str) -> None:
        """Rename it."""
        self.open().span.update_name(name)

    def set_status(self, *args: Any, **kwargs: Any) -> None:
        """Set its status."""
        self.open().span.set_status(*args, **kwargs)

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        """Record an exception."""
        self.open().span.record_exception(*args, **kwargs)

    def end(self, end_time: int | None = None) -> None:
        """End it."""
        self.open().span.end(end_time)

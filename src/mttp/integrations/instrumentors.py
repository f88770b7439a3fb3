"""
Instrumentors, one per library, as OpenTelemetry's command `opentelemetry-instrument` finds them.

They are for that command, and for those who call `instrument()` and `uninstrument()` themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any, ClassVar

from mttp import integrations
from mttp.errors import MissingExtra
from mttp.integrations.instrumentation import Libraries, instrument_libraries
from mttp.integrations.options import Options

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
except ImportError as error:
    raise MissingExtra(
        package="opentelemetry-instrumentation",
        extra="auto",
        purpose="an instrumentor of OpenTelemetry's kind",
    ) from error

__all__ = [
    "GymnasiumInstrumentor",
    "LibraryInstrumentor",
    "OpenAIInstrumentor",
    "StableBaselines3Instrumentor",
    "TrlInstrumentor",
]


class LibraryInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # untyped
    """Records what one library makes; a library that is not imported yet is instrumented when it is."""

    package: ClassVar[str]
    """The library's top-level package."""
    _libraries: Libraries | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """The library, in the versions that can be recorded."""
        return [integrations.LIBRARIES[self.package].requires]

    def _instrument(self, **kwargs: Any) -> None:
        """OpenTelemetry hands on arguments of its own, a tracer provider say, which are not for us."""
        known = {item.name for item in fields(Options)}
        options = {name: value for name, value in kwargs.items() if name in known}
        self._libraries = instrument_libraries([self.package], options)

    def _uninstrument(self, **_: Any) -> None:
        if self._libraries is not None:
            self._libraries.detach()


class GymnasiumInstrumentor(LibraryInstrumentor):
    """For Gymnasium."""

    package = "gymnasium"


class TrlInstrumentor(LibraryInstrumentor):
    """For TRL."""

    package = "trl"


class StableBaselines3Instrumentor(LibraryInstrumentor):
    """For Stable-Baselines3."""

    package = "stable_baselines3"


class OpenAIInstrumentor(LibraryInstrumentor):
    """For clients of OpenAI's kind."""

    package = "openai"

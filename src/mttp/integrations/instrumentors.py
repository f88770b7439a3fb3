"""
OpenTelemetry instrumentors, one per library.

The command `opentelemetry-instrument` finds them by entry point; programs can also call `instrument()` and
`uninstrument()` on them.
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
        purpose="an OpenTelemetry instrumentor",
    ) from error

__all__ = [
    "ArtInstrumentor",
    "GymnasiumInstrumentor",
    "InspectInstrumentor",
    "LibraryInstrumentor",
    "OpenAIInstrumentor",
    "PettingZooInstrumentor",
    "RllibInstrumentor",
    "StableBaselines3Instrumentor",
    "TrlInstrumentor",
    "VerifiersInstrumentor",
    "VerlInstrumentor",
]


class LibraryInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # untyped
    """Records everything that one library creates, as soon as the library is imported."""

    package: ClassVar[str]
    """The library's top-level package."""
    _libraries: Libraries | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the supported versions of the library, as a pip requirement."""
        return [integrations.LIBRARIES[self.package].requires]

    def _instrument(self, **kwargs: Any) -> None:
        """Instrument the library; OpenTelemetry's own arguments, such as a tracer provider, are ignored."""
        known = {item.name for item in fields(Options)}
        options = {name: value for name, value in kwargs.items() if name in known}
        self._libraries = instrument_libraries([self.package], options)

    def _uninstrument(self, **_: Any) -> None:
        if self._libraries is not None:
            self._libraries.detach()


class GymnasiumInstrumentor(LibraryInstrumentor):
    """Records Gymnasium environments."""

    package = "gymnasium"


class TrlInstrumentor(LibraryInstrumentor):
    """Records TRL trainers."""

    package = "trl"


class StableBaselines3Instrumentor(LibraryInstrumentor):
    """Records Stable-Baselines3 models."""

    package = "stable_baselines3"


class OpenAIInstrumentor(LibraryInstrumentor):
    """Records OpenAI clients."""

    package = "openai"


class ArtInstrumentor(LibraryInstrumentor):
    """Records trajectories of ART."""

    package = "art"


class InspectInstrumentor(LibraryInstrumentor):
    """Records samples and tasks of Inspect AI."""

    package = "inspect_ai"


class VerlInstrumentor(LibraryInstrumentor):
    """Records rollouts of verl's agent loops."""

    package = "verl"


class VerifiersInstrumentor(LibraryInstrumentor):
    """Records environments of verifiers."""

    package = "verifiers"


class PettingZooInstrumentor(LibraryInstrumentor):
    """Records PettingZoo environments."""

    package = "pettingzoo"


class RllibInstrumentor(LibraryInstrumentor):
    """Records RLlib's algorithms."""

    package = "ray"

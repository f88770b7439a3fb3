"""The interface of a pipeline to its session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mttp.otlp.spans import Ended
from mttp.transports.pipeline.losses import Loss

if TYPE_CHECKING:
    from mttp.transports.pipeline.pipeline import Pipeline

__all__ = ["PipelineOwner"]


class PipelineOwner(Protocol):
    """The session as a pipeline sees it: it adds start markers, gap records and the last spans."""

    def ended(self, span: Ended) -> None:
        """Take an ended span at any time, also while closing."""

    def mark(self) -> None:
        """Record start markers of open episodes and flush packed steps."""

    def wrote(self) -> None:
        """Called after each export."""

    def gap(self, loss: Loss, pipeline: Pipeline) -> None:
        """Record into `pipeline` that it lost spans."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and log the first of its kind."""

    def ending(self) -> None:
        """Record the last spans; later calls do nothing."""

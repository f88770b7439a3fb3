"""Looking at recordings: one HTML file, or a live page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.viewing.reporting import Report, report

__all__ = ["Report", "report"]

__getattr__, __dir__ = exports(__name__, {"Report": "reporting", "report": "reporting"})

"""
The names by which reward specs and users of ART find RULER; `mttp.workflows.ruler` has the code.

A spec says `use: mttp.integrations.ruler:ruler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.workflows.ruler import ruler, scored_by

__all__ = ["ruler", "scored_by"]

__getattr__, __dir__ = exports(__name__, {"ruler": "workflows.ruler", "scored_by": "workflows.ruler"})

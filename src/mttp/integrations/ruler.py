"""
The names by which reward specs and users of ART find RULER; `mttp.workflows.ruler` has the code.

A spec says `use: mttp.integrations.ruler:ruler`.
"""

from mttp.workflows.ruler import ruler, scored_by

__all__ = ["ruler", "scored_by"]

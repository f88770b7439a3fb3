"""The digest of a recording's episodes, by which a baseline is named."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["EpisodeKey", "episodes_digest"]

EpisodeKey: TypeAlias = tuple[str, int, str, "str | None", str, "int | None", "float | None", "float | None"]
"""Trace id, start, environment, task, status, length, return and duration of an episode."""


def episodes_digest(episodes: Iterable[EpisodeKey]) -> str:
    """
    Return the SHA-256 digest of episodes in any order, each counted once, as hexadecimal digits.

    Later facts, such as labels and outcomes, do not change it, nor does the format of the file.
    """
    lines = {"\t".join(map(_word, (trace_id[:16], *rest))) for trace_id, *rest in episodes}
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _word(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)

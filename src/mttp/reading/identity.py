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
    lines = {
        f"{trace_id[:16].zfill(16)}\t{start}\t{env}\t{task or ''}\t{status}"
        f"\t{'' if length is None else length}\t{_number(return_)}\t{_number(duration)}"
        for trace_id, start, env, task, status, length, return_, duration in episodes
    }
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _number(value: float | None) -> str:
    """Return a number as text, the same one for 1 and 1.0; nothing for NaN."""
    return "" if value is None or math.isnan(value) else repr(float(value))

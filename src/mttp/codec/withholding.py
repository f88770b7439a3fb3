"""placeholder, replaced on merge"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mttp.codec.plain import Plain


class Kept(NamedTuple):
    values: dict[str, Plain]
    spent: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Withholding:
    content: bool = True
    redact: Callable[[str, Any], Any] | None = None
    max_elements: int | None = None
    max_episode_bytes: int | None = None

    def keep(self, values: Mapping[str, Plain], *, spent: int = 0) -> Kept:
        return Kept(dict(values), spent, False)

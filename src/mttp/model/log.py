"""The log of mttp, whose handlers belong to the program: one that raises costs nothing but its line."""

from __future__ import annotations

import logging
from typing import Any

from mttp.model.interrupts import suppress_errors

__all__ = ["log"]


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]  # not a generic class in Python 3.10
    """Logs to a logger, and ignores exceptions of its handlers and filters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        with suppress_errors():
            super().log(level, msg, *args, **kwargs)


log = _Log(logging.getLogger("mttp"), {})
"""The log of mttp."""

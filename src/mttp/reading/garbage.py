"""Reading with the garbage collector disabled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_disabled"]


@contextmanager
def gc_disabled() -> Iterator[None]:
    """
    Disable the garbage collector: reading creates no garbage, and collections take a third of the time.

    Afterwards what was read counts as old, so that the next collection does not traverse it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else the caller's frozen objects would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()

"""Writes a file as a whole: to a new temporary file beside it, which then gets its name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PARTIAL_PREFIX", "replacing"]

PARTIAL_PREFIX = ".partial-"
"""The begin of the names of temporary files, which a killed process leaves."""
_RANDOM_BYTES = 8


@contextmanager
def replacing(target: Path, *, mode: int = 0o666, keep_mode: bool = False) -> Iterator[Path]:
    """
    Yield the path of a new empty file, which replaces `target` after the block; an exception deletes it.

    Nobody can foresee its name, and a link of that name is not followed; its end is that of `target`.
    `mode` is its permissions, less the process's mask; `keep_mode` copies those of an existing `target`.
    """
    end = "".join(target.suffixes[-2:])
    partial = target.with_name(f"{PARTIAL_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}{end}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode))
    try:
        yield partial
        if keep_mode and target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)

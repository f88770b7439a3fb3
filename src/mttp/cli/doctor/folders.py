"""Checks of the folder of a file transport: permissions and free space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mttp.cli.doctor.findings import SetupFinding, error, ok, warning
from mttp.cli.doctor.targets import SetupTarget
from mttp.cli.rendering.sizes import byte_text

__all__ = ["disk", "writable"]

FEW_BYTES = 10**9
"""Free bytes below which there is a warning."""
TOO_FEW_BYTES = 64 * 10**6
"""Free bytes below which there is an error: less than a queue may hold."""


def writable(target: SetupTarget) -> Iterator[SetupFinding]:
    """Create and delete a file in the folder, or in the directory in which the folder would be made."""
    if target.folder is None:
        return
    folder = _existing(target.folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if target.file is not None and target.file.exists():
            os.close(os.open(target.file, os.O_RDWR | os.O_APPEND))
    except OSError as problem:
        place = problem.filename if problem.filename == str(target.file) else folder
        reason = f"can't write to {place}: {problem.strerror}"
        yield error("folder", reason, "choose another place, or make this one writable")
    else:
        made = "" if folder == target.folder else f"; {target.folder} will be made"
        yield ok("folder", f"{folder} can be written{made}")


def disk(target: SetupTarget) -> Iterator[SetupFinding]:
    """Compare the free space of the folder's disk with what recording needs."""
    if target.folder is None:
        return
    try:
        free = shutil.disk_usage(_existing(target.folder)).free
    except OSError as problem:
        yield warning("disk", f"free space is unknown: {problem.strerror}", "look at the disk")
        return
    found = f"{byte_text(free)} are free on the disk of {target.folder}"
    if free < TOO_FEW_BYTES:
        yield error("disk", found, "free some space, or write to another disk: spans would be lost")
    elif free < FEW_BYTES:
        yield warning("disk", found, "`mttp size` estimates what a training needs")
    else:
        yield ok("disk", found)


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(place for place in (folder, *folder.parents) if os.path.lexists(place))

"""Checks of the folder of a file transport or a spool: permissions, free space, and spans that wait."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal

from mttp.cli.doctor.findings import SetupFinding, error, ok, warning
from mttp.cli.doctor.targets import SetupTarget
from mttp.pages.words import count
from mttp.transports.spool import SpoolFolder, bytes_of, folders
from mttp.transports.spool.folder import lock

__all__ = ["disk", "spool", "writable"]

FEW_BYTES = 10**9
"""Free bytes below which there is a warning."""
TOO_FEW_BYTES = 64 * 10**6
"""Free bytes below which there is an error: less than a queue may hold."""
MOST_OF_SPOOL = 0.8
"""Share of a spool's limit beyond which there is a warning."""


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
    found = f"{decimal(free)} are free on the disk of {target.folder}"
    if free < TOO_FEW_BYTES:
        yield error("disk", found, "free some space, or write to another disk: spans would be lost")
    elif free < FEW_BYTES:
        yield warning("disk", found, "a long training may need more")
    else:
        yield ok("disk", found)


def spool(target: SetupTarget) -> Iterator[SetupFinding]:
    """Check the locks of a spool's file system, and what waits in it."""
    if target.folder is None or not target.spool_bytes:
        return
    try:
        with tempfile.TemporaryFile(dir=_existing(target.folder)) as file:
            lock(file.fileno())
    except OSError as problem:
        reason = f"{target.folder} can't be locked: {problem.strerror}"
        yield error("spool", reason, "choose a directory on a disk with file locks")
        return
    waiting = folders(target.folder)
    used = sum(map(bytes_of, waiting))
    left = sum(map(_is_left, waiting))
    found = f"{decimal(used)} of {decimal(target.spool_bytes)} wait"
    send = f"`mttp push {target.folder}` sends them"
    if used > MOST_OF_SPOOL * target.spool_bytes:
        yield warning("spool", found, f"{send}; or raise spool_bytes: spans are lost when it is full")
    elif left:
        yield warning("spool", f"{found}, {count(left, 'folder')} of ended processes", send)
    else:
        yield ok("spool", found)


def _is_left(path: Path) -> bool:
    """Whether the process of a spool's folder has ended."""
    folder = SpoolFolder.adopt(path)
    if folder is not None:
        folder.close()
    return folder is not None


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(place for place in (folder, *folder.parents) if os.path.lexists(place))

"""Faults of disks and files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from polling import eventually

from faults.account import Account, Recording, arrived_in_files, recording
from faults.scene import fault


@contextmanager
def failing(function: str, number: int, *, partly: bool = False) -> Iterator[None]:
    """A disk whose `os.write` or `os.fsync` of recordings fails; with `partly`, after a part of the bytes."""
    real = getattr(os, function)

    def fails(fd: int, *data: Any) -> Any:
        if not _is_recording(fd):
            return real(fd, *data)
        if partly:
            real(fd, bytes(data[0])[: len(data[0]) // 2])
        raise OSError(number, os.strerror(number))

    with patch.object(os, function, fails):
        yield


def _is_recording(fd: int) -> bool:
    try:
        return Path(f"/proc/self/fd/{fd}").readlink().suffix == ".jsonl"
    except OSError:
        return False


def _while(loop: Recording, failing_disk: Any) -> None:
    """Record before, while and after a disk fails."""
    loop.train()
    loop.session.flush(5)
    with failing_disk:
        loop.train(0.5)
        assert not loop.session.flush(0.3)
    loop.train()


def _file(folder: Path, options: str, happen: Callable[[Recording, Path], None]) -> Account:
    account, path = Account(), folder / "runs" / "a.jsonl"
    with recording(f"file://{path}{options}", account) as loop:
        happen(loop, path)
    account.arrived = arrived_in_files(*path.parent.glob("*.jsonl"))
    return account


@fault(
    "The disk is full for a while.",
    "Spans wait in memory; a segment that was partly written is removed from the file.",
)
def disk_full(folder: Path) -> Account:
    disk = failing("write", errno.ENOSPC, partly=True)
    account = _file(folder, "", lambda loop, _: _while(loop, disk))
    account.check()
    return account


@fault("The disk is full until the process ends.", "The spans that were not written are counted.")
def disk_full_to_the_end(folder: Path) -> Account:
    account, path = Account(), folder / "a.jsonl"
    with recording(f"file://{path}", account, timeout=2) as loop:
        loop.train()
        loop.session.flush(5)
        with failing("write", errno.ENOSPC, partly=True):
            loop.train()
            loop.end(2)
        account.arrived = arrived_in_files(path)
    account.check(lost=["write_failed"])
    return account


@fault("The disk becomes read-only for a while.", "Spans wait in memory.")
def disk_read_only(folder: Path) -> Account:
    account = _file(folder, "", lambda loop, _: _while(loop, failing("write", errno.EROFS)))
    account.check()
    return account


@fault(
    "A network disk reports an error when a segment is synchronized.",
    "The segment is removed from the file, and written again.",
)
def late_error_of_sync(folder: Path) -> Account:
    account = _file(folder, "?fsync=segment", lambda loop, _: _while(loop, failing("fsync", errno.EIO)))
    account.check()
    return account


@fault("A network disk loses its server for a while.", "Spans wait in memory.")
def stale_handle(folder: Path) -> Account:
    account = _file(folder, "", lambda loop, _: _while(loop, failing("write", errno.ESTALE)))
    account.check()
    return account


@fault(
    "A quota is exceeded after a part of a segment.",
    "The part is removed from the file; spans wait in memory.",
)
def quota(folder: Path) -> Account:
    account = _file(folder, "", lambda loop, _: _while(loop, failing("write", errno.EDQUOT, partly=True)))
    account.check()
    return account


@fault("The file is deleted.", "A new file is created; spans in the deleted file count as delivered.")
def file_deleted(folder: Path) -> Account:
    kept: list[Path] = []

    def happen(loop: Recording, path: Path) -> None:
        loop.train()
        loop.session.flush(5)
        kept.append(Path(shutil.copy(path, folder / "kept.jsonl")))
        path.unlink()
        loop.train()

    account = _file(folder, "", happen)
    account.arrived += arrived_in_files(*kept)
    account.check()
    return account


@fault(
    "The directory is deleted.",
    "The directory and a new file are created; spans in the deleted file count as delivered.",
)
def directory_deleted(folder: Path) -> Account:
    kept: list[Path] = []

    def happen(loop: Recording, path: Path) -> None:
        loop.train()
        loop.session.flush(5)
        kept.append(Path(shutil.copy(path, folder / "kept.jsonl")))
        shutil.rmtree(path.parent)
        loop.train()

    account = _file(folder, "", happen)
    account.arrived += arrived_in_files(*kept)
    account.check()
    return account


@fault("A program rotates the file while it is written.", "No span is lost or written twice.")
def file_rotated(folder: Path) -> Account:
    def happen(loop: Recording, path: Path) -> None:
        for number in range(5):
            loop.train(0.2)
            eventually(path.exists)
            path.rename(path.with_name(f"old-{number}.jsonl"))
        loop.train(0.2)

    account = _file(folder, "", happen)
    account.check()
    return account


@fault(
    "Another writer leaves a torn line at the end of the file.", "Only the other writer's line is damaged."
)
def torn_by_another_writer(folder: Path) -> Account:
    def happen(loop: Recording, path: Path) -> None:
        for _ in range(3):
            loop.train(0.2)
            loop.session.flush(5)
            with path.open("ab") as other:
                other.write(b'{"resourceSpans":[{"torn')
        loop.train(0.2)

    account = _file(folder, "", happen)
    account.check()
    return account

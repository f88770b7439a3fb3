"""A directory in which the spans of several processes wait for their receivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mttp.errors import TransportError
from mttp.model import clock
from mttp.transports.spool.folder import OWNER, SpoolDestination, SpoolFolder, check_locks, destination_of

__all__ = ["Spool", "SpoolFullError", "bytes_of", "folders", "is_spool"]

LOOK_SECONDS = 5.0
"""Seconds between two looks at the folders of other processes: their sizes, and whether they were left."""


class SpoolFullError(OSError):
    """The spool has reached its limit."""


class Spool:
    """
    The spool of one transport: a folder of this process, and the folders of processes that have ended.

    `max_bytes` limits the files of all processes; sizes of other processes are up to five seconds old.
    Raises TransportError if the directory can't be written or has no file locks.
    """

    def __init__(self, directory: Path, max_bytes: int, destination: SpoolDestination) -> None:
        self.directory = directory
        """The directory, an absolute path."""
        self.max_bytes = max_bytes
        """Maximum bytes of all files."""
        self.destination = destination
        """Where the spans are to be sent."""
        self._lock = threading.Lock()
        self._own: SpoolFolder | None = None
        self._adopted: SpoolFolder | None = None
        self._others, self._measured, self._looked = 0, float("-inf"), float("-inf")
        try:
            check_locks(directory)
        except OSError as error:
            raise TransportError(
                f"can't use spool={directory}: {error.strerror}; choose another directory on a disk with "
                "file locks, or make this one writable"
            ) from error

    def append(self, lines: bytes | bytearray) -> None:
        """Append whole lines; raises SpoolFullError, or another OSError if they can't be written."""
        with self._lock:
            own_bytes = bytes_of(self._own.path) if self._own is not None else 0
            if own_bytes + self._others_bytes() + len(lines) > self.max_bytes:
                raise SpoolFullError(f"the spool {self.directory} has reached spool_bytes={self.max_bytes}")
            own_exists = self._own is not None and (self._own.path / OWNER).exists() and self._own.is_held()
            if self._own is not None and not own_exists:
                self._own.close()
                self._own = None
            if self._own is None:
                self._own = SpoolFolder.create(self.directory, self.destination)
            self._own.append(lines)

    @property
    def own(self) -> SpoolFolder | None:
        """The folder of this process; None if it has none."""
        return self._own

    def remove_own(self) -> None:
        """Delete the folder of this process, whose spans were sent."""
        with self._lock:
            folder, self._own = self._own, None
        if folder is not None:
            folder.remove()

    def adopted(self) -> SpoolFolder | None:
        """
        Return the oldest folder for the same receiver that another process has left, which is then locked.

        Directories are looked at every five seconds at most.
        """
        with self._lock:
            if self._adopted is None and clock.seconds() - self._looked > LOOK_SECONDS:
                with suppress(OSError):
                    candidates = (
                        SpoolFolder.adopt(path, to=self.destination.to) for path in self._other_folders()
                    )
                    self._adopted = next((folder for folder in candidates if folder is not None), None)
                if self._adopted is None:
                    self._looked = clock.seconds()
            return self._adopted

    def remove_adopted(self) -> None:
        """Delete the adopted folder, whose spans were sent."""
        adopted, self._adopted = self._adopted, None
        if adopted is not None:
            adopted.remove()
            if adopted.path.exists():  # it can't be deleted: do not take it over again at once
                self._looked = clock.seconds()

    def close(self) -> None:
        """Unlock the folders, so that other processes may send what is left."""
        with self._lock:
            for folder in (self._own, self._adopted):
                if folder is not None:
                    folder.close()
            self._own = self._adopted = None

    def after_fork(self) -> None:
        """In a forked child: leave the folders to the parent."""
        self._lock = threading.Lock()
        self.close()  # closes copies of descriptors: the parent's locks stay

    def _other_folders(self) -> Iterator[Path]:
        own_path = self._own.path if self._own is not None else None
        return (path for path in folders(self.directory) if path != own_path)

    def _others_bytes(self) -> int:
        """Return the bytes of the files of other processes."""
        if clock.seconds() - self._measured > LOOK_SECONDS:
            self._others, self._measured = sum(map(bytes_of, self._other_folders())), clock.seconds()
        return self._others


def folders(directory: Path) -> list[Path]:
    """Return the folders of a spool, oldest first; or the directory itself if it is such a folder."""
    if (directory / OWNER).is_file():
        return [directory]
    return sorted(path.parent for path in directory.glob(f"*/{OWNER}"))


def is_spool(directory: Path) -> bool:
    """Whether a directory has folders of a spool, or is one of them."""
    return directory.is_dir() and any(destination_of(path) is not None for path in folders(directory))


def bytes_of(folder: Path) -> int:
    """Return the bytes of the spans in a folder."""
    total = 0
    for path in folder.glob("*.jsonl"):
        with suppress(OSError):
            total += path.stat().st_size
    return total

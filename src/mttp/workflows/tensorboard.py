"""Curves as event files of TensorBoard."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mttp.errors import MissingExtra, TransportError
from mttp.transports.options import path_of, take
from mttp.workflows.curve_transport import CurveTransport

__all__ = ["open"]

_MOST_CHARACTERS = 80


def open(address: str, options: Mapping[str, object]) -> CurveTransport:
    """
    Open `tensorboard://DIRECTORY`, which gets a directory of event files for each run.

    Raises TransportError if the directory can't be made, and MissingExtra without tensorboardX.
    """
    take(options, EventFiles)
    files = EventFiles(unquote(path_of(address)))
    return CurveTransport("tensorboard", f"tensorboard://{files.directory}", files)


class EventFiles:
    """An event file for each run, in a directory of its own."""

    def __init__(self, path: str) -> None:
        self._open_file, self._event, self._summary = _library()
        self._files: dict[str, Any] = {}
        self._unflushed: set[str] = set()
        try:
            self.directory = Path(path or ".").expanduser().absolute()
            """The directory of all runs."""
            self.directory.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(f"can't make the directory {path}: {error}; choose another place") from error

    def write(
        self,
        run: str,
        run_id: str,
        points: Mapping[str, float],
        *,
        axis: str,  # noqa: ARG002 - each tag has one axis
        number: int,
        time: int,
    ) -> None:
        """Append one event with all points."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in points.items()]
        event = self._event(wall_time=time / 1e9, step=number, summary=self._summary(value=values))
        self._file(run, run_id).write_event(event)
        self._unflushed.add(run_id)

    def _file(self, run: str, run_id: str) -> Any:
        if run_id not in self._files:
            place = self._new_directory(run if run == run_id else f"{run}-{run_id[:8]}")
            self._files[run_id] = self._open_file(str(place / "events"))
        return self._files[run_id]

    def _new_directory(self, run: str) -> Path:
        """Make a directory; two writers in one would make one curve of two."""
        name = re.sub(r"[^\w.-]", "_", run)[:_MOST_CHARACTERS].strip(".") or "run"
        place = self.directory / name
        while place.exists():
            place = self.directory / f"{name}-{os.getpid()}-{os.urandom(3).hex()}"
        place.mkdir(parents=True)
        return place

    def flush(self) -> None:
        """Flush the files that were written to."""
        while self._unflushed:
            self._files[self._unflushed.pop()].flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def after_fork(self) -> None:
        """In a forked child: write files of its own."""
        self._files, self._unflushed = {}, set()


def _library() -> tuple[Any, Any, Any]:
    """The classes of an event file, an event and a summary."""
    try:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
    except ImportError as error:
        raise MissingExtra(package="tensorboardX", extra="tensorboard", purpose="tensorboard://") from error
    return EventsWriter, Event, Summary

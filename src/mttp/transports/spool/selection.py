"""Which folders of a spool are for a receiver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mttp.codec.secrets import REDACTED
from mttp.errors import ConfigureError
from mttp.transports.otlp.settings import TRACES_PATH
from mttp.transports.spool.folder import destination_of
from mttp.transports.spool.spool import folders

__all__ = ["SpoolSelection", "select"]


@dataclass(frozen=True, slots=True)
class SpoolSelection:
    """The folders for one receiver."""

    address: str
    """The receiver's address."""
    profile: str | None
    """The profile of the receiver, if the folders agree on one."""
    folders: list[Path]
    """The folders, oldest first."""
    others: int
    """How many folders are for other receivers."""


def select(directory: Path, to: str | None) -> SpoolSelection:
    """
    Return the folders of a spool for the receiver `to`, by default for the only one that it names.

    If all folders are for one receiver, `to` may be another one. Raises ConfigureError if it is not clear.
    """
    destinations = {path: where for path in folders(directory) if (where := destination_of(path)) is not None}
    known = {where.to for where in destinations.values()}
    place, _, options = (to or "").partition("?")
    place = place.rstrip("/")
    spellings = known if to is None else known.intersection([place, f"{place}{TRACES_PATH}"])
    receivers = spellings or known
    is_clear = len(receivers) == 1 and (to is not None or REDACTED not in min(receivers))
    if not is_clear:
        listed = ", ".join(sorted(known))
        raise ConfigureError(f"{directory} has spans for {listed}; name the receiver with --to")
    paths = [path for path, where in destinations.items() if where.to in receivers]
    profiles = {destinations[path].profile for path in paths}
    is_stated = len(profiles) == 1 and spellings and "profile=" not in options
    profile = profiles.pop() if is_stated else None
    return SpoolSelection(to or min(receivers), profile, paths, len(destinations) - len(paths))

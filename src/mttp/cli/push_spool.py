"""`mttp push SPOOL`: send the spans that ended processes left in a spool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from mttp.cli.output import receiver, say
from mttp.cli.rendering.words import count
from mttp.codec.secrets import REDACTED
from mttp.errors import ConfigureError
from mttp.transports.pushing import Push
from mttp.transports.spool import SpoolFolder, folders
from mttp.transports.spool.folder import destination_of

__all__ = ["PushOptions", "interruptible", "push_spool"]


class PushOptions(TypedDict):
    """Options of `Push` for recordings and spools."""

    rate: float | None
    max_retry_seconds: float
    dry: bool
    on_trouble: Callable[[str], None]


def push_spool(
    directory: Path,
    to: str | None,
    *,
    header: Sequence[str] | None,
    profile: str | None,
    sending: PushOptions,
) -> tuple[Push, list[str]]:
    """
    Send the spans of a spool to `to`, by default to the receiver that it names.

    Return the push and notes about what was not sent. Raises ConfigureError if the receiver is not clear.
    """
    destinations = {path: found for path in folders(directory) if (found := destination_of(path)) is not None}
    known = {found.to for found in destinations.values()}
    address = _address(directory, known, to)
    profiles = {found.profile for found in destinations.values() if found.to == address}
    transport = receiver(
        address, header=header, profile=profile or (profiles.pop() if len(profiles) == 1 else None)
    )
    wanted = [path for path, found in destinations.items() if len(known) == 1 or found.to == repr(transport)]
    job = Push(
        transport=transport,
        withholding=replace(transport.withholding, content=True, token_ids=True),
        **sending,
    )
    with ExitStack() as stack:
        adopted = [folder for path in wanted if (folder := SpoolFolder.adopt(path)) is not None]
        for folder in adopted:
            stack.callback(folder.close)
        with interruptible(job, "the rest stays in the spool"):
            job.run_spool(adopted)
    return job, list(_notes(running=len(wanted) - len(adopted), others=len(destinations) - len(wanted)))


def _notes(*, running: int, others: int) -> Iterator[str]:
    if running:
        yield f"not sent: {count(running, 'folder')} of running processes, which send their own spans"
    if others:
        yield f"not sent: {count(others, 'folder')} for another receiver"


def _address(directory: Path, known: set[str], to: str | None) -> str:
    if to is None and len(known) == 1 and not any(REDACTED in url for url in known):
        return next(iter(known))
    options = [] if to is None else [to, f"{to.rstrip('/')}/v1/traces"]
    if to is not None and (len(known) == 1 or known.intersection(options)):
        return to
    listed = ", ".join(sorted(known))
    raise ConfigureError(f"{directory} has spans for {listed}; name the receiver with --to")


@contextmanager
def interruptible(job: Push, rest: str) -> Iterator[None]:
    """Say on Ctrl-C how many spans were sent."""
    try:
        yield
    except KeyboardInterrupt:
        more = "" if job.dry else f"; {rest}"
        say(f"mttp: interrupted after {count(job.pushed.spans, 'span')}{more}", error=True)
        raise

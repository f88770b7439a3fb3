"""Writes the curves of a recording to the tools that draw them."""

from __future__ import annotations

from typing import cast

from mttp import transports
from mttp.errors import TransportError
from mttp.model.counting import training_runs
from mttp.model.curves import CURVE_ADDRESSES
from mttp.reading.recording import Recording, read
from mttp.reading.sources import Source
from mttp.workflows.curve_transport import CurveTransport

__all__ = ["write_curves"]


def write_curves(source: Source | Recording, address: str) -> None:
    """
    Write the curves of episodes and updates to `tensorboard://DIRECTORY` or `wandb://[ENTITY/]PROJECT`.

    The curves are those that a session writes to the same address while it records: the return, length,
    success, components and grader errors of each episode, over the episodes of its run in order of start; and
    the loss, KL, entropy and metrics of each update, over its index. Each run has a run of its own there.
    Raises TransportError for another address or if the tool can't be used, MissingExtra if its library is not
    installed, and ReadError if the source can't be read.
    """
    if not address.startswith(CURVE_ADDRESSES):
        known = " or ".join(f"{one}…" for one in CURVE_ADDRESSES)
        raise TransportError(f"{address!r} is not the address of a tool for curves; write {known}")
    recording = source if isinstance(source, Recording) else read(source)
    episodes = [(episode.run_id, episode.task, episode.split) for episode in recording.episodes]
    with_updates = {update.run_id for update in recording.updates}
    target = cast(CurveTransport, transports.open(address))
    try:
        target.training.update(training_runs(recording.runs, episodes, with_updates=with_updates))
        for run in recording.runs:
            target.name_run(run.id, run.name)
        for episode in recording.episodes:
            target.add_episode(episode)
        for update in recording.updates:
            target.add_update(update)
        target.flush()
    finally:
        target.shutdown()

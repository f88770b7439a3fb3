"""Recording a trainer's updates: metrics, and the episodes that each one learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mttp.codec.plain import number
from mttp.integrations.faults import guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.trl import facts, trainers
from mttp.integrations.trl.groups import RecordedBatch
from mttp.integrations.trl.recorder import ROWS
from mttp.model import clock
from mttp.model.episodes import Episode
from mttp.recording import configuration, training

__all__ = ["TrainerUpdates"]

_NAMED = {
    "kl": "kl",
    "entropy": "entropy",
    "clip_ratio/region_mean": "clip_fraction",
    "clip_ratio": "clip_fraction",
}
"""Fields of an update by TRL's names; other numbers are metrics."""


@dataclass(slots=True)
class _OpenUpdate:
    """An update that is in progress."""

    losses: list[Any] = field(default_factory=list)
    """The loss of each part of the batch, as tensors."""
    rows: list[tuple[RecordedBatch, list[int]]] = field(default_factory=list)
    """The batch and rows of each part."""
    grad_norm: Any = None
    learning_rate: float | None = None
    began: int = 0
    """The start of the first part in nanoseconds since the Unix epoch."""


class TrainerUpdates:
    """Follows a trainer by TRL's callback events and wrapped methods, and records its updates."""

    def __init__(self, trainer: Any, options: Options) -> None:
        self._trainer = trainer
        self._options = options
        self._update = _OpenUpdate()
        self._pending: dict[str, Any] | None = None
        self._unlogged = 0
        self._before = self._made = 0
        self._batch: RecordedBatch | None = None
        self._parts: list[tuple[Any, RecordedBatch, list[int]]] = []
        self._seen: dict[str, tuple[Sequence[float], int]] = {}

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options

    def version(self) -> int:
        """Return the number of updates so far, with those of earlier calls of `train`."""
        return self._before + trainers.version(self._trainer)

    def on_recorded(self, batch: RecordedBatch) -> None:
        """Set the batch from which the next updates learn."""
        self._batch, self._parts = batch, []

    # Wrappers of the trainer's methods.

    def prepare_inputs(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the method that returns the next part of a batch, and generates a batch when needed."""
        inputs = wrapped(*args, **kwargs)
        guard("trl", self._take_inputs, inputs)
        return inputs

    def training_step(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the computation of the gradient from one part of a batch."""
        loss = wrapped(*args, **kwargs)
        self._update.losses.append(loss)
        return loss

    def clip_grad_norm(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Wrap gradient clipping, which returns the norm of the whole gradient before clipping."""
        norm = wrapped(*args, **kwargs)
        if not hasattr(norm, "full_tensor"):  # reading a distributed tensor is a collective operation
            self._update.grad_norm = norm
        return norm

    def _take_inputs(self, inputs: Any) -> None:
        if self._batch is None or not isinstance(inputs, dict):
            return
        if ROWS in inputs:  # the first use of this part, or a copy of it
            self._parts.append((inputs, self._batch, inputs.pop(ROWS).tolist()))
        if trainers.is_training(self._trainer):
            self._update.began = self._update.began or clock.wall()
            self._update.rows += [(batch, rows) for part, batch, rows in self._parts if part is inputs]

    # TRL's callback events.

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start a call of `train`; by now there is an optimizer."""
        if trainers.version(self._trainer) == 0:  # TRL restarts its count
            self._before = self._made
        self._update, self._pending, self._unlogged = _OpenUpdate(), None, 0
        self._seen = {name: (values, len(values)) for name, values in trainers.metrics(self._trainer).items()}
        session = None if is_suppressed() else configuration.recording_session()
        if session is not None:
            session.describe(**facts.of(self._trainer))

    def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """Read the learning rate that the optimizer is about to use."""
        groups = getattr(optimizer, "param_groups", None)
        self._update.learning_rate = number(groups[0]["lr"]) if groups else None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Prepare the record of an update; TRL's log line follows, if it logs this update."""
        self._write()
        update, self._update = self._update, _OpenUpdate()
        self._unlogged += 1
        self._made = self.version()
        is_wanted = configuration.may_record() and not is_suppressed()
        if is_wanted and trainers.processes(self._trainer)[0] == 0:
            self._pending = self._facts(update)

    def on_log(self, *_: Any, logs: Mapping[str, Any] | None = None, **__: Any) -> None:
        """Take loss and gradient norm from TRL's log line if it covers one update, and write the update."""
        if "loss" in (logs or {}):
            alone, self._unlogged = self._unlogged == 1, 0
            if self._pending is not None and alone:
                for name in ("loss", "grad_norm"):
                    if self._pending[name] is None:
                        self._pending[name] = number((logs or {}).get(name))
        self._write()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Write the update before."""
        self._write()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write the last update."""
        self._write()

    # Recording.

    def _facts(self, update: _OpenUpdate) -> dict[str, Any]:
        index = self.version() - 1
        metrics = self._new_metrics()
        named = {name: metrics.pop(key) for key, name in _NAMED.items() if key in metrics}
        alone = trainers.processes(self._trainer)[1] == 1
        epoch = number(getattr(self._trainer.state, "epoch", None))
        return {
            "index": index,
            "policy": self._options.policy or trainers.policy(self._trainer),
            "loss": _sum(update.losses) if alone else None,
            "grad_norm": number(update.grad_norm),
            "learning_rate": update.learning_rate,
            "policy_version_before": index,
            "policy_version_after": index + 1,
            "metrics": metrics if epoch is None else {**metrics, "epoch": epoch},
            "start_time": update.began or None,
            "end_time": clock.wall(),
            **named,
            **self._episodes(update, index),
        }

    def _new_metrics(self) -> dict[str, float]:
        """Return the mean of each metric's values since the last update, as TRL's log line has it."""
        fresh: dict[str, float] = {}
        for name, values in trainers.metrics(self._trainer).items():
            before, count = self._seen.get(name, (None, 0))
            new = [value for value in values[count if before is values else 0 :] if not math.isnan(value)]
            self._seen[name] = values, len(values)
            if new:
                fresh[name] = sum(new) / len(new)
        return fresh

    def _episodes(self, update: _OpenUpdate, index: int) -> dict[str, Any]:
        """Return the groups and episodes that an update learned from, of those that this process knows."""
        if not update.rows:
            return {}
        processes = trainers.processes(self._trainer)[1]
        groups: list[Any] = []
        episodes: list[Episode] = []
        masked: list[Episode] = []
        lags: list[int] = []
        for batch, rows in _by_batch(update.rows):
            whole, single = _groups_and_episodes(batch, rows, is_whole=len(rows) * processes == batch.total)
            groups += whole
            episodes += single
            masked += [batch.episodes[row] for row in sorted(rows & batch.masked)]
            lags += [index - batch.version] * len(rows)
        return {
            "groups": groups,
            "episodes": episodes,
            "discarded": {"masked_truncated": masked} if masked else None,
            "consumed": (len(lags) - len(masked)) * processes if processes > 1 else None,
            "lag": lags,
        }

    def _write(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            training.update(**pending)


def _by_batch(parts: Sequence[tuple[RecordedBatch, list[int]]]) -> list[tuple[RecordedBatch, set[int]]]:
    """Return the rows of the parts, by batch."""
    batches: dict[int, tuple[RecordedBatch, set[int]]] = {}
    for batch, rows in parts:
        batches.setdefault(batch.number, (batch, set()))[1].update(rows)
    return list(batches.values())


def _groups_and_episodes(
    batch: RecordedBatch, rows: set[int], *, is_whole: bool
) -> tuple[list[Any], list[Episode]]:
    """Return the groups that were used completely, by handle or id, and the used episodes of the others."""
    if is_whole:
        positions = range(batch.total // batch.size)
        ids = {position: batch.launch.group_id(batch.number, position) for position in positions}
        return [batch.groups.get(position, id) for position, id in ids.items()], []
    members = {position: _members(batch, position) for position in batch.groups}
    whole = {position: some for position, some in members.items() if rows.issuperset(some)}
    named = {row for some in whole.values() for row in some}
    groups = [batch.groups[position] for position in whole]
    return groups, [batch.episodes[row] for row in sorted(rows - named)]


def _members(batch: RecordedBatch, position: int) -> range:
    """Return the rows of a group; rows outside this process's range belong to other processes."""
    first = position * batch.size - batch.first
    return range(first, first + batch.size)


def _sum(losses: Sequence[Any]) -> float | None:
    numbers = [number(loss) for loss in losses]
    known = [loss for loss in numbers if loss is not None]
    return math.fsum(known) if known and len(known) == len(numbers) else None

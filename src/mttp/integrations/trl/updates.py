"""The updates of a trainer's policy: how each went, and which episodes it learned from."""

from __future__ import annotations

import math
import time
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
from mttp.model.episodes import Episode
from mttp.recording import configuration, training

__all__ = ["TrainerUpdates"]

_NAMED = {
    "kl": "kl",
    "entropy": "entropy",
    "clip_ratio/region_mean": "clip_fraction",
    "clip_ratio": "clip_fraction",
}
"""What an update says in words of the convention, by TRL's; the rest are its metrics."""


@dataclass(slots=True)
class _Step:
    """An update that is under way."""

    losses: list[Any] = field(default_factory=list)
    """Of each part of the batch, as tensors."""
    rows: list[tuple[RecordedBatch, list[int]]] = field(default_factory=list)
    """What these parts are of."""
    grad_norm: Any = None
    learning_rate: float | None = None
    began: int = 0
    """When the first part went to the policy, in nanoseconds since the Unix epoch."""


class TrainerUpdates:
    """Notes what a trainer does from one update to the next; it is told of events as TRL's callbacks are."""

    def __init__(self, trainer: Any, options: Options) -> None:
        self._trainer = trainer
        self._options = options
        self._step = _Step()
        self._pending: dict[str, Any] | None = None
        self._unlogged = 0
        self._before = self._made = 0
        self._batch: RecordedBatch | None = None
        self._parts: list[tuple[Any, RecordedBatch, list[int]]] = []
        self._seen: dict[str, tuple[Sequence[float], int]] = {}

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._options = options

    def version(self) -> int:
        """How many updates the policy has had, those of an earlier call of `train` included."""
        return self._before + trainers.version(self._trainer)

    def recorded(self, batch: RecordedBatch) -> None:
        """Take note of a batch from which the next updates learn."""
        self._batch, self._parts = batch, []

    # What surrounds the trainer's methods.

    def prepare_inputs(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Part of a batch on its way to the policy; a new batch is generated meanwhile where it is time."""
        found = wrapped(*args, **kwargs)
        guard("trl", self._given, found)
        return found

    def training_step(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Part of a batch, from which the gradient was taken."""
        loss = wrapped(*args, **kwargs)
        self._step.losses.append(loss)
        return loss

    def clip_grad_norm(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """The gradient of all parts, as it was before it was clipped."""
        norm = wrapped(*args, **kwargs)
        if not hasattr(norm, "full_tensor"):  # spread over processes, it must be asked for in all of them
            self._step.grad_norm = norm
        return norm

    def _given(self, found: Any) -> None:
        if self._batch is None or not isinstance(found, dict):
            return
        if ROWS in found:  # the first time that it is learned from, or a copy
            self._parts.append((found, self._batch, found.pop(ROWS).tolist()))
        if trainers.is_training(self._trainer):
            self._step.began = self._step.began or time.time_ns()
            self._step.rows += [(batch, rows) for part, batch, rows in self._parts if part is found]

    # What the trainer tells its callbacks.

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Training begins, or goes on from a checkpoint: by now there is an optimizer."""
        if trainers.version(self._trainer) == 0:  # it counts anew, and learns on
            self._before = self._made
        self._step, self._pending, self._unlogged = _Step(), None, 0
        self._seen = {name: (values, len(values)) for name, values in trainers.metrics(self._trainer).items()}
        session = None if is_suppressed() else configuration.recording_session()
        if session is not None:
            session.describe(**facts.of(self._trainer))

    def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """The optimizer is about to use its learning rate."""
        groups = getattr(optimizer, "param_groups", None)
        self._step.learning_rate = number(groups[0]["lr"]) if groups else None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The update was made; TRL's log line, where there is one now, comes right after."""
        self._write()
        step, self._step = self._step, _Step()
        self._unlogged += 1
        self._made = self.version()
        is_wanted = configuration.may_record() and not is_suppressed()
        if is_wanted and trainers.processes(self._trainer)[0] == 0:
            self._pending = self._facts(step)

    def on_log(self, *_: Any, logs: Mapping[str, Any] | None = None, **__: Any) -> None:
        """TRL logs, after an update or an evaluation: what it says of one update alone is that update's."""
        if "loss" in (logs or {}):
            alone, self._unlogged = self._unlogged == 1, 0
            if self._pending is not None and alone:
                for name in ("loss", "grad_norm"):
                    if self._pending[name] is None:
                        self._pending[name] = number((logs or {}).get(name))
        self._write()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The next update begins."""
        self._write()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """No update comes any more."""
        self._write()

    # What is recorded.

    def _facts(self, step: _Step) -> dict[str, Any]:
        index = self.version() - 1
        found = self._fresh()
        named = {name: found.pop(key) for key, name in _NAMED.items() if key in found}
        alone = trainers.processes(self._trainer)[1] == 1
        epoch = number(getattr(self._trainer.state, "epoch", None))
        return {
            "index": index,
            "policy": self._options.policy or trainers.policy(self._trainer),
            "loss": _sum(step.losses) if alone else None,
            "grad_norm": number(step.grad_norm),
            "learning_rate": step.learning_rate,
            "policy_version_before": index,
            "policy_version_after": index + 1,
            "metrics": found if epoch is None else {**found, "epoch": epoch},
            "start_time": step.began or None,
            "end_time": time.time_ns(),
            **named,
            **self._learned(step, index),
        }

    def _fresh(self) -> dict[str, float]:
        """What TRL noted since the last update: of each the mean, which its log line is for one update."""
        fresh: dict[str, float] = {}
        for name, values in trainers.metrics(self._trainer).items():
            before, count = self._seen.get(name, (None, 0))
            new = [value for value in values[count if before is values else 0 :] if not math.isnan(value)]
            self._seen[name] = values, len(values)
            if new:
                fresh[name] = sum(new) / len(new)
        return fresh

    def _learned(self, step: _Step, index: int) -> dict[str, Any]:
        """The episodes and groups that an update learned from, as far as this process knows them."""
        if not step.rows:
            return {}
        processes = trainers.processes(self._trainer)[1]
        groups: list[Any] = []
        episodes: list[Episode] = []
        masked: list[Episode] = []
        lags: list[int] = []
        for batch, rows in _by_batch(step.rows):
            whole, single = _names(batch, rows, everywhere=len(rows) * processes == batch.total)
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
    """The rows of each batch that parts are of."""
    found: dict[int, tuple[RecordedBatch, set[int]]] = {}
    for batch, rows in parts:
        found.setdefault(batch.number, (batch, set()))[1].update(rows)
    return list(found.values())


def _names(batch: RecordedBatch, rows: set[int], *, everywhere: bool) -> tuple[list[Any], list[Episode]]:
    """The groups of which everybody learned from all, by handle or id, and the episodes of the others."""
    if everywhere:
        positions = range(batch.total // batch.size)
        ids = {position: batch.launch.group_id(batch.number, position) for position in positions}
        return [batch.groups.get(position, id) for position, id in ids.items()], []
    members = {position: _members(batch, position) for position in batch.groups}
    whole = {position: some for position, some in members.items() if rows.issuperset(some)}
    named = {row for some in whole.values() for row in some}
    groups = [batch.groups[position] for position in whole]
    return groups, [batch.episodes[row] for row in sorted(rows - named)]


def _members(batch: RecordedBatch, position: int) -> range:
    """The rows of a group; some may be those of other processes."""
    first = position * batch.size - batch.first
    return range(first, first + batch.size)


def _sum(losses: Sequence[Any]) -> float | None:
    found = [number(loss) for loss in losses]
    known = [loss for loss in found if loss is not None]
    return math.fsum(known) if known and len(known) == len(found) else None

"""Reward functions for trainers, made from reward specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mttp.errors import NeedsGroup
from mttp.model.results import RewardResult

if TYPE_CHECKING:
    from mttp.rewards.protocols import TrainerSpec


class RewardBatch(list["float | None"]):
    """The rewards of a batch of completions, None for invalid samples, with the results behind them."""

    def __init__(self, results: Sequence[RewardResult]) -> None:
        super().__init__(result.value for result in results)
        self.results = tuple(results)
        """The result of each completion, in order."""


class TrlReward:
    """
    A spec as a reward function of TRL: `reward_funcs=[spec.for_trl()]`.

    A sample has TRL's `prompt` and `completion` and the dataset's columns; a spec with `inputs` gets only
    these. For an input of type `string`, a list of messages is replaced by the content of its last message.
    Raises NeedsGroup when a component is relative and `group_size` is not given.
    """

    def __init__(self, spec: TrainerSpec, *, concurrency: int = 1, group_size: int | None = None) -> None:
        relative = [part.name for part in spec.parts if part.relative]
        if relative and group_size is None:
            raise NeedsGroup(
                f"spec {spec.name}: {', '.join(relative)} compares the samples of a group;"
                " call for_trl(group_size=...) with the trainer's num_generations"
            )
        self.spec = spec
        """The spec that scores the completions."""
        self.__name__ = spec.name
        self._concurrency = concurrency
        self._group_size = group_size if relative else None

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> RewardBatch:
        """
        Return the reward of each completion, in order; None for an invalid sample, which TRL ignores.

        Raises ValueError when a spec with relative components gets a batch that is not a multiple of the
        group size.
        """
        samples = list(self._samples({"prompt": prompts, "completion": completions, **columns}))
        size = self._group_size
        if size is None:
            return RewardBatch(self.spec.score_batch(samples, concurrency=self._concurrency))
        if len(samples) % size:
            raise ValueError(
                f"{len(samples)} completions are not a multiple of group_size={size}; pass the trainer's "
                "num_generations as group_size"
            )
        groups = (samples[start : start + size] for start in range(0, len(samples), size))
        return RewardBatch([result for group in groups for result in self.spec.rank(group).results])

    def __repr__(self) -> str:
        return f"{self.spec!r}.for_trl()"

    def _samples(self, columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a sample for each completion, without TRL's arguments that are not columns."""
        kinds = self.spec.document.inputs
        count = len(columns["completion"])
        inputs = {
            name: column
            for name, column in columns.items()
            if isinstance(column, (list, tuple)) and len(column) == count and (not kinds or name in kinds)
        }
        texts = {name for name, kind in kinds.items() if kind.rstrip("?") == "string"}
        for row in range(count):
            yield {
                name: text_of(column[row]) if name in texts else column[row]
                for name, column in inputs.items()
            }


def text_of(value: Any) -> Any:
    """Return the content of the last message of a list; other values unchanged."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[-1], Mapping):
        return value[-1].get("content")
    return value

"""A reward spec as the reward function that a trainer asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mttp.errors import NeedsGroup
from mttp.model.results import RewardResult

if TYPE_CHECKING:
    from mttp.rewards.protocols import TrainerSpec

__all__ = ["RewardBatch", "TrlReward"]


class RewardBatch(list["float | None"]):
    """What a batch of completions is paid, None where a sample is invalid; with the results behind it."""

    def __init__(self, results: Sequence[RewardResult]) -> None:
        super().__init__(result.value for result in results)
        self.results = tuple(results)
        """How each came about, in the same order."""


class TrlReward:
    """
    A spec in TRL's batch form: `reward_funcs=[spec.for_trl()]`.

    A sample has TRL's `prompt` and `completion` and the dataset's columns, of which a spec that states its
    inputs gets these. Where an input is a string and TRL has messages, it is the content of the last one.
    Raises NeedsGroup where a component is relative and `group_size` is not given.
    """

    def __init__(self, spec: TrainerSpec, *, concurrency: int = 1, group_size: int | None = None) -> None:
        relative = [part.name for part in spec.parts if part.relative]
        if relative and group_size is None:
            raise NeedsGroup(
                f"spec {spec.name}: {', '.join(relative)} compares the samples of a group;"
                " write for_trl(group_size=...) with the trainer's num_generations"
            )
        self.spec = spec
        """The spec that pays."""
        self.__name__ = spec.name
        self._concurrency = concurrency
        self._group_size = group_size if relative else None

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> RewardBatch:
        """
        The reward of each completion, in their order; None where there is none, which TRL leaves out.

        Raises ValueError where relative components are given a batch that does not consist of whole groups.
        """
        samples = list(self._samples({"prompt": prompts, "completion": completions, **columns}))
        size = self._group_size
        if size is None:
            return RewardBatch(self.spec.score_batch(samples, concurrency=self._concurrency))
        if len(samples) % size:
            raise ValueError(f"{len(samples)} completions are no whole groups of {size}")
        groups = (samples[start : start + size] for start in range(0, len(samples), size))
        return RewardBatch([result for group in groups for result in self.spec.rank(group).results])

    def __repr__(self) -> str:
        return f"{self.spec!r}.for_trl()"

    def _samples(self, columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A sample per completion; what TRL hands over beside its columns is none of them."""
        stated = self.spec.document.inputs
        count = len(columns["completion"])
        wanted = {
            name: column
            for name, column in columns.items()
            if isinstance(column, (list, tuple)) and len(column) == count and (not stated or name in stated)
        }
        texts = {name for name, kind in stated.items() if kind.rstrip("?") == "string"}
        for row in range(count):
            yield {
                name: _text(column[row]) if name in texts else column[row] for name, column in wanted.items()
            }


def _text(value: Any) -> Any:
    """The content of the last of several messages; anything else as it is."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[-1], Mapping):
        return value[-1].get("content")
    return value

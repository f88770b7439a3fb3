"""What a reward spec promises to those who pay by it, and to those who lock it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mttp.model.results import Ranking, RewardResult
from mttp.rewards.document import ComponentEntry, SpecDocument
from mttp.rewards.episodic import EpisodeScorer
from mttp.rewards.plan import ScoringPlan

__all__ = ["LockedSpec", "TrainerSpec"]


class LockedSpec(Protocol):
    """A spec as a lock knows it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """Its semantic version."""

    @property
    def path(self) -> Path | None:
        """Its file; None where it has none."""

    @property
    def sha256(self) -> str:
        """Digest of what it says."""

    @property
    def code_sha256(self) -> str:
        """Digest of the code that scores."""

    def everything(self) -> Iterator[LockedSpec]:
        """This spec, those that it includes, and so on."""


class TrainerSpec(Protocol):
    """A spec as a trainer's reward knows it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def document(self) -> SpecDocument:
        """What it says."""

    @property
    def plan(self) -> ScoringPlan:
        """What scoring follows."""

    @property
    def parts(self) -> Sequence[ComponentEntry]:
        """Its components, with an entry for each included spec."""

    @property
    def score(self) -> Callable[[Mapping[str, Any]], RewardResult]:
        """What is paid for a sample, by its terminal components."""

    @property
    def score_step(self) -> Callable[[Mapping[str, Any]], RewardResult]:
        """What is paid for a step."""

    def for_episode(self) -> EpisodeScorer:
        """What scores one episode's steps and its end together."""

    def score_batch(
        self, samples: Sequence[Mapping[str, Any]], *, concurrency: int = 1
    ) -> list[RewardResult]:
        """What is paid for each sample."""

    def rank(self, group: Sequence[Mapping[str, Any]], *, seed: int | None = None) -> Ranking:
        """What is paid for the members of a group."""

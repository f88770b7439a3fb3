"""Protocols of reward specs for modules that `spec` imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mttp.model.results import Ranking, RewardResult
from mttp.rewards.document import ComponentEntry, SpecDocument
from mttp.rewards.episodic import EpisodeScorer
from mttp.rewards.plan import ScoringPlan


class LockedSpec(Protocol):
    """The members of a spec that locking uses."""

    @property
    def name(self) -> str:
        """The spec's name."""

    @property
    def version(self) -> str:
        """The spec's semantic version."""

    @property
    def path(self) -> Path | None:
        """The spec's file, or None."""

    @property
    def sha256(self) -> str:
        """The digest of the spec's rules."""

    @property
    def code_sha256(self) -> str:
        """The digest of the scoring code."""

    def everything(self) -> Iterator[LockedSpec]:
        """Yield this spec and all specs that it includes."""


class TrainerSpec(Protocol):
    """The members of a spec that rewards for trainers use."""

    @property
    def name(self) -> str:
        """The spec's name."""

    @property
    def document(self) -> SpecDocument:
        """The keys of the spec file."""

    @property
    def plan(self) -> ScoringPlan:
        """The spec ready to score."""

    @property
    def parts(self) -> Sequence[ComponentEntry]:
        """The spec's components, with an entry for each included spec."""

    @property
    def score(self) -> Callable[[Mapping[str, Any]], RewardResult]:
        """The function that scores a sample by the components of scope `terminal`."""

    @property
    def score_step(self) -> Callable[[Mapping[str, Any]], RewardResult]:
        """The function that scores a step by the components of scope `step`."""

    def for_episode(self) -> EpisodeScorer:
        """Return a scorer for one episode's steps and end."""

    def score_batch(
        self, samples: Sequence[Mapping[str, Any]], *, concurrency: int = 1
    ) -> list[RewardResult]:
        """Score many samples."""

    def rank(self, group: Sequence[Mapping[str, Any]], *, seed: int | None = None) -> Ranking:
        """Score the samples of a group together."""

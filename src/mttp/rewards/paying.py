"""What a reward spec promises to those who pay by it, and to those who lock it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mttp.rewards.document import Document, Entry
from mttp.rewards.episodic import EpisodeScorer
from mttp.rewards.plan import Plan
from mttp.rewards.results import Ranking, RewardResult

__all__ = ["Identified", "Paying"]


class Identified(Protocol):
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

    def everything(self) -> Iterator[Identified]:
        """This spec, those that it includes, and so on."""


class Paying(Protocol):
    """A spec as a trainer's reward knows it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def document(self) -> Document:
        """What it says."""

    @property
    def plan(self) -> Plan:
        """What scoring follows."""

    @property
    def parts(self) -> Sequence[Entry]:
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

"""Results of scoring by a reward spec: of one sample, and of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from mttp.model.episodes import Grade, Reward, Spec

__all__ = ["RESULT", "Provenance", "Ranking", "RewardResult"]

RESULT: Final = "mttp_result"
"""The key in the `info` of an environment's step with the `RewardResult` of a reward spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of one relative component's values, which are comparable only within the group."""

    group: str
    """SHA-256 over the digests of all members, in the group's order."""
    members: tuple[str, ...]
    """SHA-256 of each member's inputs as sorted JSON, in the group's order."""
    order: tuple[int, ...]
    """The members' indices in the group, in the order of the component's first call."""
    repeats: tuple[tuple[int, ...], ...] = ()
    """The orders of further calls, for a component with `repeats`."""
    seed: int | None = None
    """The seed of the orders; None if the first order is the group's."""
    model: str | None = None
    """The judge's model, from its return value or its `params`."""
    prompt_sha256: str | None = None
    """SHA-256 of the judge's prompt, from its return value or its `params`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """
    The result of scoring one sample by a reward spec; `spec.score` returns one.

    Pass it to `episode.reward(result)`, `step.reward(result)` or `mttp.score(episode, result)` to record it.
    """

    value: float | None = None
    """The reward; None for an invalid sample, or the floor under `on_invalid: floor`."""
    status: str = "ok"
    """ok, error, abstained or missing; only the value of a result that is ok is a valid score."""
    verdict: str | None = None
    """pass or fail, if a verifier decided; fail if a check failed."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks that failed, sorted; those of included specs are dotted paths."""
    components: Mapping[str, Grade] = field(default_factory=dict)
    """The grades of all components by name, in the document's order."""
    error: str | None = None
    """The errors of the components or of the sample; None without errors."""
    error_type: str | None = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    range: tuple[float, float] | None = None
    """The lowest and highest reward; None if unknown."""
    clipped: bool = False
    """Whether the reward was outside of the range and was clipped."""
    spec: Spec
    """The name, version and digests of the spec."""
    start_time: int = 0
    """The start of scoring, in nanoseconds since the Unix epoch."""
    end_time: int = 0
    """The end of scoring, in nanoseconds since the Unix epoch."""
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """The provenance of each relative component's values by name."""
    document: str = field(default="", repr=False, compare=False)
    """The spec's document as canonical JSON, which the recording of a run keeps once."""
    span_id: str = field(default="", compare=False)
    """The span of this scoring, 16 hex digits; empty if it is not recorded."""

    @property
    def invalid(self) -> tuple[str, ...]:
        """The names of the components without a value."""
        return tuple(name for name, grade in self.components.items() if grade.status != "ok")

    @property
    def clips(self) -> int:
        """The number of clipped values, including the reward."""
        return self.clipped + sum(grade.clipped for grade in self.components.values())

    @property
    def duration(self) -> float:
        """The duration of scoring in seconds."""
        return (self.end_time - self.start_time) / 1e9

    @property
    def relative(self) -> bool:
        """Whether the reward is comparable only within its group."""
        return any(grade.relative for grade in self.components.values())

    @property
    def reward(self) -> Reward:
        """The result as an `mttp.Reward`."""
        grades = self.components.values()
        return Reward(
            value=self.value,
            status=self.status,
            components={
                grade.name: grade.value
                for grade in grades
                if grade.value is not None and grade.status == "ok"
            },
            component_statuses={grade.name: grade.status for grade in grades if grade.status != "ok"},
            weights={grade.name: grade.weight for grade in grades if grade.weight is not None},
            error=self.error,
            error_type=self.error_type,
            range=self.range,
            verdict=self.verdict,
            failed_checks=self.failed_checks,
            spec=self.spec,
            relative=True if self.relative else None,
            clipped=self.clipped,
            evidence={name: asdict(origin) for name, origin in self.provenance.items()} or None,
            grades=tuple(grades),
            span_id=self.span_id,
            start_time=self.start_time,
            end_time=self.end_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The results of one group; `spec.rank` returns one."""

    results: tuple[RewardResult, ...]
    """The members' results, in the group's order."""
    provenance: Mapping[str, Provenance]
    """The provenance of each relative component's values by name."""

    @property
    def values(self) -> tuple[float | None, ...]:
        """The members' rewards, in the group's order; None for a member without one."""
        return tuple(result.value for result in self.results)

    @property
    def order(self) -> tuple[int, ...]:
        """The indices of the members with the status ok, best first; ties keep the group's order."""
        valued = [
            (place, result.value)
            for place, result in enumerate(self.results)
            if result.value is not None and result.status == "ok"
        ]
        return tuple(place for place, _ in sorted(valued, key=lambda pair: -pair[1]))

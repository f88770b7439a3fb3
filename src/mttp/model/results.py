"""What scoring comes to: the reward of a sample, and the rewards of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from mttp.model.episodes import Grade, Reward, Spec

__all__ = ["RESULT", "Provenance", "Ranking", "RewardResult"]

RESULT: Final = "mttp_result"
"""The key of the info of an environment's step that holds the `RewardResult` of a reward spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How the values of one relative component came about; they must not be compared beyond the group."""

    group: str
    """SHA-256 over the digests of all members, in the group's order."""
    members: tuple[str, ...]
    """SHA-256 of each member's inputs as canonical JSON, in the group's order."""
    order: tuple[int, ...]
    """The places in the group, in the order in which the component was shown the members."""
    repeats: tuple[tuple[int, ...], ...] = ()
    """The orders of its further calls, where it is called several times."""
    seed: int | None = None
    """What that order was drawn with; None where it is the group's."""
    model: str | None = None
    """The judge's model, as its parameters or its answer say."""
    prompt_sha256: str | None = None
    """SHA-256 of the judge's prompt, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """One sample's reward, what it was made of, and whether it can be trusted."""

    value: float | None = None
    """The reward; beside a status that is not ok, the floor that `on_invalid: floor` pays."""
    status: str = "ok"
    """ok, error or abstained; an error is never a zero."""
    verdict: str | None = None
    """pass or fail, where a verifier decided; fail where a check failed."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks that failed, sorted."""
    components: Mapping[str, Grade] = field(default_factory=dict)
    """The components by name, in the document's order."""
    error: str | None = None
    """What went wrong, where anything did."""
    error_type: str | None = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    range: tuple[float, float] | None = None
    """Lowest and highest reward, where they are known."""
    clipped: bool = False
    """Whether the reward was beyond the range and became its nearest end."""
    spec: Spec
    """Name, version and digests of the spec."""
    start_time: int = 0
    """When scoring began, in nanoseconds since the Unix epoch."""
    end_time: int = 0
    """When it had ended, likewise."""
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Of each relative component, how its values came about."""
    document: str = field(default="", repr=False, compare=False)
    """The spec's document as canonical JSON, for whoever records the reward."""
    span_id: str = field(default="", compare=False)
    """The span that was recorded of this scoring, 16 hex digits; empty where none was."""

    @property
    def invalid(self) -> tuple[str, ...]:
        """Names of the components that have no value."""
        return tuple(name for name, grade in self.components.items() if grade.status != "ok")

    @property
    def clips(self) -> int:
        """How many values were clipped, the reward's included."""
        return self.clipped + sum(grade.clipped for grade in self.components.values())

    @property
    def duration(self) -> float:
        """Seconds that scoring took."""
        return (self.end_time - self.start_time) / 1e9

    @property
    def relative(self) -> bool:
        """Whether the reward means something within its group only."""
        return any(grade.relative for grade in self.components.values())

    @property
    def reward(self) -> Reward:
        """The same as the vocabulary says it, to be recorded."""
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
            evidence={name: asdict(one) for name, one in self.provenance.items()} or None,
            grades=tuple(grades),
            span_id=self.span_id,
            start_time=self.start_time,
            end_time=self.end_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The rewards of one group, whose relative components mean nothing beyond it."""

    results: tuple[RewardResult, ...]
    """The members' rewards, in the group's order."""
    provenance: Mapping[str, Provenance]
    """Of each relative component, how its values came about."""

    @property
    def values(self) -> tuple[float | None, ...]:
        """The members' rewards as numbers, None where there is none."""
        return tuple(result.value for result in self.results)

    @property
    def order(self) -> tuple[int, ...]:
        """The places in the group, the best first; those that are not ok are left out, and ties stay."""
        valued = [
            (place, one.value)
            for place, one in enumerate(self.results)
            if one.value is not None and one.status == "ok"
        ]
        return tuple(place for place, _ in sorted(valued, key=lambda one: -one[1]))

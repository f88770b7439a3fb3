"""Diagnoses as values: findings, what was judged healthy, and what could not be judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

Severity: TypeAlias = Literal["high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low")
"""From the worst on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisFinding:
    """One problem that a detector found."""

    kind: str = ""
    """The detector's name, such as `reward_hacking`."""
    severity: Severity
    evidence: str
    """What was measured: numbers, interval, n and method in a sentence."""
    confidence: str
    """How sure it is, in words."""
    n: int
    """How many values the evidence rests on."""
    method: str
    """How value, interval and p value were computed."""
    value: float | None = None
    interval: tuple[float, float] | None = None
    """The 95 % interval of `value`."""
    p_value: float | None = None
    """Two-sided, corrected where several hypotheses were tested."""
    episodes: tuple[str, ...] = ()
    """Trace ids of example episodes."""
    advice: str = ""
    """What usually fixes it."""
    false_alarm_rate: float = 0.0
    """How often healthy runs have this finding with the severity medium or high."""
    false_alarm_method: str = ""
    """How that was measured."""

    def __repr__(self) -> str:
        return f"<{self.severity} {self.kind}: {self.evidence}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A detector that had enough data and found nothing."""

    kind: str = ""
    evidence: str
    """What was measured, with n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJudged:
    """A detector that could not judge."""

    kind: str = ""
    reason: str
    """Which data it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReading:
    """The trends of validation and reward, and what they mean together."""

    validation: str
    """up, flat, down, unclear, or unknown where nothing but the reward was recorded."""
    reward: str
    """up, flat, down, unclear, or unknown where there are too few rewards."""
    validation_trend: str
    """The trend with interval, n and method, or why there is none."""
    reward_trend: str
    meaning: str
    action: str
    """continue, watch, finish, stop, or measure where a trend is not known."""
    table: tuple[tuple[str, str, str, str], ...]
    """Validation, reward, meaning and action of every combination of up, flat and down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong with a training run; every detector is in one of its tuples."""

    source: str
    episodes: int
    updates: int
    quality: str | None
    """The quality that rewards were compared with; None where there is none."""
    findings: tuple[DiagnosisFinding, ...]
    """The worst first."""
    judged: tuple[Cleared, ...]
    missing: tuple[NotJudged, ...]
    reading: TrainingReading
    should_stop: bool
    """Whether training on would do harm."""
    advice: str
    """What to do next, in a sentence."""
    problems: tuple[str, ...] = ()
    """What is wrong with the recording."""
    sampled: tuple[str, ...] = ()
    """What says that the recording is a sample of its run, whose figures are not the run's."""
    inapplicable: tuple[str, ...] = ()
    """Kinds of detectors whose problem such a run can't have, as of text in an environment with numbers."""

    def __getitem__(self, kind: str) -> DiagnosisFinding | Cleared | NotJudged:
        if kind in self.inapplicable:
            return NotJudged(kind=kind, reason="a run of this kind can't have this problem")
        results: tuple[DiagnosisFinding | Cleared | NotJudged, ...]
        results = (*self.findings, *self.judged, *self.missing)
        entries = {result.kind: result for result in results}
        if kind not in entries:
            raise KeyError(f"there is no detector {kind!r}; there are {', '.join(sorted(entries))}")
        return entries[kind]

    def at_least(self, severity: Severity) -> tuple[DiagnosisFinding, ...]:
        """The findings of this severity and worse."""
        worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return tuple(finding for finding in self.findings if finding.severity in worst)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)

    def __repr__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        listed = ", ".join(f"{counts[level]} {level}" for level in SEVERITIES if counts[level]) or "none"
        return f"<Diagnosis: findings {listed}; {len(self.judged)} judged, {len(self.missing)} not judged>"

"""Results of a gate as values: one rule, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from mttp.study.differences import SideDifference
from mttp.study.sample import SampleIdentity

RULES_VERSION = 2
"""The version of the rules by which verdicts are found."""
RuleVerdict: TypeAlias = Literal["pass", "fail", "inconclusive"]
GateVerdict: TypeAlias = Literal["promote", "reject", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule and what the recordings say about it."""

    name: str
    """The section and what it is about, such as `protected split=easy success`; unique."""
    kind: str
    """aggregate, protected, focus, safety, service, hacking, data, baseline or pins."""
    verdict: RuleVerdict
    evidence: str
    """The estimate, its bound, the limit, n and the method, as one sentence."""
    value: float | None = None
    """The estimate."""
    bound: float | None = None
    """The one-sided confidence bound that decides; None where the rule counts, or the data support none."""
    limit: float | None = None
    n: int = 0
    """Episodes."""
    method: str = ""
    episodes: tuple[str, ...] = ()
    """Trace ids of episodes that speak against the rule."""
    needed: int | None = None
    """The least number of tasks or runs with which an inconclusive rule can pass, if it is known."""

    def __repr__(self) -> str:
        return f"<{self.name}: {self.verdict}, {self.evidence}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Whether a candidate may be promoted."""

    candidate: str
    baseline: str | None
    rules: tuple[RuleResult, ...]
    differences: tuple[SideDifference, ...] = ()
    """What differs between candidate and baseline besides their results."""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with the recordings."""
    identity: SampleIdentity | None = None
    """Which recording the baseline is."""
    candidate_identity: SampleIdentity = field(default_factory=SampleIdentity)
    """Which recording the candidate is."""
    rules_sha256: str = ""
    """Digest of the rules."""
    rules_version: int = RULES_VERSION
    """The version of the rules by which verdicts are found."""

    @property
    def verdict(self) -> GateVerdict:
        """`reject` if a rule failed, else `inconclusive` if one is, else `promote`."""
        verdicts = {rule.verdict for rule in self.rules}
        return "reject" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "promote"

    def __getitem__(self, name: str) -> RuleResult:
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise KeyError(f"there is no rule {name!r}; there are {', '.join(rule.name for rule in self.rules)}")

    def __iter__(self) -> Iterator[RuleResult]:
        return iter(self.rules)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {"verdict": self.verdict, **asdict(self)}

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{count} {word}"
            for word in ("pass", "fail", "inconclusive")
            if (count := sum(rule.verdict == word for rule in self.rules))
        )
        return f"<GateResult: {self.verdict}, {counts}>"

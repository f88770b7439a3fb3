"""A reward spec ready to score: functions found, includes resolved, gates and weights stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mttp.model.episodes import Spec
from mttp.rewards.document import Combine, ComponentEntry
from mttp.rewards.trust import Trust

__all__ = ["Component", "ScoringPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One component as it is scored."""

    entry: ComponentEntry
    """What the document says of it; for an included spec, an entry made from its include."""
    function: Callable[..., Any] | None = None
    """What is called; None for an included spec."""
    plan: ScoringPlan | None = None
    """The included spec, whose reward is this component's value."""

    @property
    def name(self) -> str:
        """Its name in the spec."""
        return self.entry.name

    @property
    def scopes(self) -> frozenset[str]:
        """What it scores: ends, steps, or as an included spec both."""
        if self.plan is None:
            return frozenset([self.entry.scope])
        return frozenset(scope for one in self.plan.components for scope in one.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringPlan:
    """Everything that scoring needs of a spec."""

    identity: Spec
    """Name, version and digests, as every reward says them."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Type by name; a `?` behind it makes it optional. Empty where the document states none."""
    components: tuple[Component, ...] = ()
    combine: Combine | Callable[..., Any] = "gated"
    """By name, or the user's function of (values by name, weights by name)."""
    partial_credit: float | None = None
    range: tuple[float, float] | None = None
    """Lowest and highest reward that is stated or can be reached; None where a component has no range."""
    clip: bool = False
    step_total: tuple[float, float] | None = None
    """Lowest and highest sum of an episode's step rewards."""
    floor: float = 0.0
    """What a failed check gives."""
    on_invalid: str = "invalid"
    location: str | None = None
    """Path of the spec's file, by which a worker loads it again."""
    trust: Trust = field(default_factory=Trust)
    """The code that the user trusts: a worker may import no other."""
    document: str = ""
    """The document as canonical JSON, of which a recording keeps one copy; empty where nobody wrote it."""
    prepared: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What scoring has worked out once, for the samples to come."""

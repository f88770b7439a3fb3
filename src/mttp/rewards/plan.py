"""Scoring plans: reward specs with imported functions and resolved includes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mttp.model.episodes import Spec
from mttp.rewards.document import Combine, ComponentEntry
from mttp.rewards.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One component of a scoring plan."""

    entry: ComponentEntry
    """The component's keys; for an included spec, an entry made from the include."""
    function: Callable[..., Any] | None = None
    """The imported function; None for an included spec."""
    plan: ScoringPlan | None = None
    """The plan of the included spec, whose reward is this component's value."""

    @property
    def name(self) -> str:
        """The component's name in the spec."""
        return self.entry.name

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that it scores: terminal, step, or both for an included spec."""
        if self.plan is None:
            return frozenset([self.entry.scope])
        return frozenset(scope for component in self.plan.components for scope in component.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringPlan:
    """Everything that scoring needs from a spec."""

    identity: Spec
    """The name, version and digests that are recorded with every reward."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The types of inputs by name, with a `?` after optional ones; empty if the spec has no `inputs`."""
    components: tuple[Component, ...] = ()
    combine: Combine | Callable[..., Any] = "gated"
    """A method by name, or the user's function of (values by name, weights by name)."""
    partial_credit: float | None = None
    range: tuple[float, float] | None = None
    """The lowest and highest reward, stated or reachable; None if a component has no range."""
    clip: bool = False
    step_total: tuple[float, float] | None = None
    """The lowest and highest sum of an episode's step rewards."""
    floor: float = 0.0
    """The reward of a failed check."""
    on_invalid: str = "invalid"
    location: str | None = None
    """The path of the spec's file, which workers load."""
    trust: Trust = field(default_factory=Trust)
    """The trusted code, also for workers."""
    document: str = ""
    """The document as canonical JSON, which a recording keeps once; empty for a plan without one."""
    prepared: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache of scorers and workers."""

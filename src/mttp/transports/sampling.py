"""Sampling of whole episodes by group, and rules that keep failed ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from mttp.codec import shares
from mttp.codec.plain import scalar_text
from mttp.errors import ConfigureError
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.semconv import attributes as a

__all__ = ["RULES", "Rule", "Sampling", "from_environment"]


Rule: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Called with the attributes of an episode's spans, root last; True keeps an episode that is not chosen."""


def _failed(spans: Sequence[Mapping[str, Any]]) -> bool:
    return spans[-1].get(a.EPISODE_OUTCOME) == "failure"


def _erred(spans: Sequence[Mapping[str, Any]]) -> bool:
    return any(a.ERROR_TYPE in span or span.get(a.EPISODE_STATUS) == "error" for span in spans)


def _aborted(spans: Sequence[Mapping[str, Any]]) -> bool:
    return spans[-1].get(a.EPISODE_STATUS) == "aborted"


def _invalid_reward(spans: Sequence[Mapping[str, Any]]) -> bool:
    return any("error" in (span.get(a.REWARD_STATUS), span.get(a.STEP_REWARD_STATUS)) for span in spans)


RULES: Mapping[str, Rule] = {
    "failure": _failed,
    "error": _erred,
    "aborted": _aborted,
    "invalid_reward": _invalid_reward,
}
"""The named rules."""


class Sampling:
    """
    Exports the share `ratio` of all episodes, from 0 to 1, and those that a rule of `keep` selects.

    The decision is by group, or by trace for an episode without one: all processes of a run decide alike.
    A rule is a name (failure, error, aborted, invalid_reward) or a function.
    A function gets the attributes of the spans that this process recorded of the episode, root last.
    Memory and file transports receive all episodes.
    Raises ConfigureError for an invalid ratio or rule.
    """

    def __init__(
        self, ratio: float = 1.0, *, keep: str | Rule | Collection[str | Rule] = ("error", "invalid_reward")
    ) -> None:
        value: object = ratio
        if not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise ConfigureError(f"sampling ratio {scalar_text(ratio):.80} is not a number from 0 to 1")
        self.ratio = float(ratio)
        self._threshold = round((1.0 - self.ratio) * (1 << shares.BITS))
        self.keep = tuple(map(_rule, keep if isinstance(keep, (list, tuple, set, frozenset)) else [keep]))

    def __repr__(self) -> str:
        names = [
            next((name for name, known in RULES.items() if known is rule), repr(rule)) for rule in self.keep
        ]
        return f"Sampling({self.ratio}, keep={names})"

    def chooses(self, trace_id: int, *, run_id: str, group: str | None) -> bool:
        """Whether the episode is in the exported share."""
        return _randomness(trace_id, run_id, group) >= self._threshold

    def state(self, trace_id: int, *, run_id: str, group: str | None, wanted: bool) -> str:
        """
        Return what the trace state of an exported episode states: with which share one like it is exported.

        That is all of those that a rule wants, chosen or not, and else the ratio.
        """
        explicit = None if group is None else _randomness(trace_id, run_id, group)
        return shares.state(0 if wanted else self._threshold, explicit)

    def wants(self, spans: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a rule keeps an episode, chosen or not; a rule that raises keeps it."""
        for rule in self.keep:
            try:
                if rule(spans):
                    return True
            except Exception as error:
                raise_interrupt(error)
                raised = type(error).__name__  # and not its message, which may quote content
                log.warning("mttp: sampling rule %r raised %s, and the episode is sent", rule, raised)
                return True
        return False


def _randomness(trace_id: int, run_id: str, group: str | None) -> int:
    """Return the number by which the members of a group, or one episode without a group, are chosen."""
    if group is None:
        return trace_id & ((1 << shares.BITS) - 1)
    digest = hashlib.sha256(f"{run_id}\0{group}".encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[: shares.BITS // 8], "big")


def _rule(rule: str | Rule) -> Rule:
    if callable(rule):
        return rule
    name: object = rule
    known = [RULES[name]] if isinstance(name, str) and name in RULES else []
    if not known:
        raise ConfigureError(
            f"sampling rule {scalar_text(rule):.80} is not one of {', '.join(RULES)}, nor a function"
        )
    return known[0]


def from_environment() -> Sampling | None:
    """
    The sampling that OTEL_TRACES_SAMPLER sets, without rules.

    None where all episodes are sampled.
    Raises ConfigureError for an invalid ratio.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if name == "always_off":
        return Sampling(0.0, keep=())
    if name != "traceidratio":
        return None
    ratio = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0"
    try:
        return Sampling(float(ratio), keep=())
    except ValueError as error:  # as a ConfigureError is, too
        raise ConfigureError(f"OTEL_TRACES_SAMPLER_ARG={ratio!r} is not a number from 0 to 1") from error

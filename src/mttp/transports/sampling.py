"""Which episodes a collector gets: a share of them, whole and by groups, and those that went wrong."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from mttp.errors import ConfigureError
from mttp.semconv import attributes as a

__all__ = ["RULES", "Rule", "Sampling", "from_environment"]

_log = logging.getLogger("mttp")

Rule: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Asked with the attributes of an episode's spans, the root's last, whether it is sent in any case."""

_BITS = 56
"""OpenTelemetry's samplers decide by the last 56 bits of a trace id; so that they agree, we do too."""


def _failed(spans: Sequence[Mapping[str, Any]]) -> bool:
    return spans[-1].get(a.EPISODE_OUTCOME) == "failure"


def _erred(spans: Sequence[Mapping[str, Any]]) -> bool:
    return any(a.ERROR_TYPE in span or span.get(a.EPISODE_STATUS) == "error" for span in spans)


def _aborted(spans: Sequence[Mapping[str, Any]]) -> bool:
    return spans[-1].get(a.EPISODE_STATUS) == "aborted"


def _paid_invalid(spans: Sequence[Mapping[str, Any]]) -> bool:
    return any("error" in (span.get(a.REWARD_STATUS), span.get(a.STEP_REWARD_STATUS)) for span in spans)


RULES: Mapping[str, Rule] = {
    "failure": _failed,
    "error": _erred,
    "aborted": _aborted,
    "invalid_reward": _paid_invalid,
}
"""The rules that have names."""


class Sampling:
    """
    Sends `ratio` of all episodes, from 0 to 1, and each one that a rule of `keep` wants.

    The choice is by group, where an episode has one, else by trace: all processes of a run choose alike.
    A rule is a name (failure, error, aborted, invalid_reward) or a function.
    It is given the attributes of the spans that this process recorded of the episode, the root's last.
    What no collector gets is in memory and files all the same.
    Raises ConfigureError for a ratio or a rule that is none.
    """

    def __init__(
        self, ratio: float = 1.0, *, keep: str | Rule | Collection[str | Rule] = ("error", "invalid_reward")
    ) -> None:
        stated: object = ratio
        if not isinstance(stated, (int, float)) or not 0.0 <= stated <= 1.0:
            raise ConfigureError(f"sampling ratio {ratio!r} is not a number from 0 to 1")
        self.ratio = float(ratio)
        self.keep = tuple(map(_rule, keep if isinstance(keep, (list, tuple, set, frozenset)) else [keep]))

    def __repr__(self) -> str:
        names = [
            next((name for name, known in RULES.items() if known is rule), repr(rule)) for rule in self.keep
        ]
        return f"Sampling({self.ratio}, keep={names})"

    def chooses(self, trace_id: int, *, run_id: str, group: str | None) -> bool:
        """Whether the episode is in the share that is sent."""
        if group is None:
            bits = trace_id & ((1 << _BITS) - 1)
        else:
            digest = hashlib.sha256(f"{run_id}\0{group}".encode("utf-8", "replace")).digest()
            bits = int.from_bytes(digest[: _BITS // 8], "big")
        return bits >= round((1.0 - self.ratio) * (1 << _BITS))

    def wants(self, spans: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a rule wants an episode that is not in the share; one that raises does."""
        for rule in self.keep:
            try:
                if rule(spans):
                    return True
            except Exception as error:
                raised = type(error).__name__  # and not its message, which may quote content
                _log.warning("mttp: sampling rule %r raised %s, and the episode is sent", rule, raised)
                return True
        return False


def _rule(given: str | Rule) -> Rule:
    if callable(given):
        return given
    known = [rule for name, rule in RULES.items() if name == given]
    if not known:
        raise ConfigureError(f"sampling rule {given!r} is not one of {', '.join(RULES)}, nor a function")
    return known[0]


def from_environment() -> Sampling | None:
    """
    What OpenTelemetry's OTEL_TRACES_SAMPLER asks for, to the letter: no rule adds anything.

    None where it asks for nothing less than all.
    Raises ConfigureError for a ratio that is none.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if name == "always_off":
        return Sampling(0.0, keep=())
    if name != "traceidratio":
        return None
    stated = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0"
    try:
        return Sampling(float(stated), keep=())
    except ValueError as error:  # as a ConfigureError is, too
        raise ConfigureError(f"OTEL_TRACES_SAMPLER_ARG={stated!r} is not a number from 0 to 1") from error

"""Policy updates: attributes of their spans and of link spans, and updates from spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mttp.codec import fields, kinds, templates
from mttp.codec.plain import Faults, Plain
from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.declarations import keys
from mttp.model.episodes import Update
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["MAX_LINKS", "decode", "encode", "logged_fields", "markers"]

MAX_LINKS = 100
"""The maximum number of groups or episodes that a span links: most SDKs keep 128 links of a span."""

_LOGGED = {
    **{name: name for name in UPDATE_NUMBERS},
    **dict.fromkeys(("total_loss",), "loss"),
    **dict.fromkeys(("approx_kl", "mean_kl", "mean_kl_loss", "ppo_kl", "kl_divergence", "kl_div"), "kl"),
    **dict.fromkeys(("mean_entropy", "policy_entropy"), "entropy"),
    **dict.fromkeys(("gradient_norm", "gradients_default_optimizer_global_norm"), "grad_norm"),
    **dict.fromkeys(("lr", "default_optimizer_learning_rate"), "learning_rate"),
    **dict.fromkeys(("clipfrac", "clip_frac", "pg_clipfrac", "clip_ratio"), "clip_fraction"),
    **dict.fromkeys(("pg_loss", "policy_gradient_loss", "actor_loss"), "policy_loss"),
    **dict.fromkeys(("v_loss", "vf_loss", "critic_loss"), "value_loss"),
    **dict.fromkeys(("explained_var", "vf_explained_var"), "explained_variance"),
}
"""Fields of an update by the names that trainers log them under; the sign of an `entropy_loss` varies."""
_PREFIXES = ("train/", "losses/", "charts/")
KEYS = frozenset(keys(Update).values())
"""All attributes of an update except templates."""
TEMPLATES = (a.UPDATE_DISCARDED, a.METRIC, a.METADATA)


def encode(update: Update, faults: Faults) -> dict[str, Plain]:
    """Return the update's attributes, without user-supplied metrics and metadata."""
    return fields.encode_value(update, faults) | templates.encode(a.UPDATE_DISCARDED, update.discarded)


def logged_fields(logged: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of an update among logged values, and the other values by name."""
    of_update, others = dict[str, Any](), dict[str, Any]()
    for name, value in logged.items():
        head = next(filter(name.startswith, _PREFIXES), "")
        field = _LOGGED.get(name.removeprefix(head).lower())
        if field is None or field in of_update:
            others[name] = value
        else:
            of_update[field] = value
    return of_update, others


def markers(update: Update) -> Iterator[dict[str, Plain]]:
    """Yield the attributes of link spans for groups, episodes and, by reason, discarded episodes."""
    identity: dict[str, Plain] = {a.RUN_ID: update.run_id, a.UPDATE_INDEX: update.index}
    for part in _parts(update.groups):
        yield identity | {a.UPDATE_GROUPS: part}
    for part in _parts(update.episodes):
        yield identity | {a.UPDATE_EPISODES: part}
    for reason, episodes in update.discarded_episodes.items():
        for part in _parts(episodes):
            yield identity | {a.UPDATE_EPISODES: part, a.UPDATE_DISCARD_REASON: reason}


def _parts(ids: Sequence[str]) -> Iterator[list[str]]:
    return (list(ids[at : at + MAX_LINKS]) for at in range(0, len(ids), MAX_LINKS))


def decode(record: SpanRecord, others: Iterable[SpanRecord] = ()) -> Update:
    """Return the update of a span; its link spans are among the trace's other spans."""
    attributes: Mapping[str, Any] = record.attributes
    marks = [other.attributes for other in others if kinds.kind(other) == names.UPDATE_LINKS]
    discarded: dict[str, tuple[str, ...]] = {}
    for mark in marks:
        if (reason := mark.get(a.UPDATE_DISCARD_REASON)) is not None:
            discarded[reason] = (*discarded.get(reason, ()), *mark.get(a.UPDATE_EPISODES, ()))
    consumed = [mark for mark in marks if a.UPDATE_DISCARD_REASON not in mark]
    return Update(
        groups=_all(consumed, a.UPDATE_GROUPS),
        episodes=_all(consumed, a.UPDATE_EPISODES),
        discarded=templates.decode(a.UPDATE_DISCARDED, attributes),
        discarded_episodes=discarded,
        **fields.of_span(Update, record, KEYS, TEMPLATES),
    )


def _all(marks: Sequence[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(name for mark in marks for name in mark.get(key) or ())

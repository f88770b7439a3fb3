"""What a policy was given and did in a span: columns of `spans` that need its content or its tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mttp.codec import blocks, content, kinds, tokens
from mttp.codec.calls import EXECUTE_TOOL
from mttp.model.chat import text_of
from mttp.model.divergence import log_ratio
from mttp.model.episodes import Tokens
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["BEHAVIOR", "is_model_call", "recorded_messages"]


def is_model_call(record: SpanRecord) -> bool:
    """Return whether the span is a call of a model."""
    operation: str = record.attributes.get(a.GEN_AI_OPERATION_NAME, EXECUTE_TOOL)
    return operation != EXECUTE_TOOL


def recorded_messages(record: SpanRecord, key: str) -> object:
    """Return an attribute of any type; other libraries write messages as JSON."""
    value = record.attributes.get(key)
    is_message = key in (a.GEN_AI_INPUT_MESSAGES, a.GEN_AI_OUTPUT_MESSAGES)
    is_foreign = is_message and a.RUN_ID not in record.attributes
    return from_json(value) if is_foreign and isinstance(value, str) else value


def _contents(record: SpanRecord, keys: content.ContentKeys) -> Any:
    """Return the observations or actions of a span of a step or a block of steps."""
    kind = kinds.kind(record)
    if kind == names.STEPS:
        return blocks.values_of(record.attributes, keys.value)
    value = content.decode(keys, record.attributes) if kind == names.STEP else None
    return [] if value is None else [value]


def _action_text(record: SpanRecord) -> str | None:
    """Return what the policy wrote; None beside the ids of its tokens, which say the same."""
    if _has_array(record, "ids"):
        return None
    if is_model_call(record):
        return text_of(recorded_messages(record, a.GEN_AI_OUTPUT_MESSAGES))
    texts = [text for action in _contents(record, content.ACTION) if (text := text_of(action)) is not None]
    return "\n".join(texts) if texts else None


def _observation_text(record: SpanRecord) -> str | None:
    """Return what the policy was given at the first step of an episode or an agent."""
    if is_model_call(record):
        return text_of(recorded_messages(record, a.GEN_AI_INPUT_MESSAGES))
    if record.attributes.get(a.STEP_INDEX) or record.attributes.get(a.STEPS_FIRST_INDEX):
        return None
    return next(map(text_of, _contents(record, content.OBSERVATION)), None)


def _action_counts(record: SpanRecord) -> list[tuple[int, int]] | None:
    """Return how often each action was taken that is an integer, or an array of one."""
    counts: Counter[int] = Counter()
    for action in _contents(record, content.ACTION):
        if isinstance(action, (list, tuple, np.ndarray)) and np.shape(action) == (1,):
            action = action[0]
        elif not isinstance(action, (int, np.integer)):
            continue
        if isinstance(action, (int, float, np.number, np.bool_)) and math.isfinite(action):
            counts[int(action)] += 1
    return [*counts.items()] or None


def _vectors(record: SpanRecord) -> Any:
    """Return the observations that are vectors of one size; None without any."""
    contents = _contents(record, content.OBSERVATION)
    is_listed = not isinstance(contents, np.ndarray)
    if not len(contents) or (is_listed and not isinstance(contents[0], (np.ndarray, list, tuple))):
        return None
    try:
        vectors = np.asarray(contents)
    except ValueError:  # of several sizes
        return None
    return vectors.astype(float) if vectors.ndim == 2 and vectors.dtype.kind in "biuf" else None


def _bound(of: Callable[..., Any]) -> Callable[[SpanRecord], list[float] | None]:
    def bound(record: SpanRecord) -> list[float] | None:
        vectors = _vectors(record)
        return None if vectors is None or not vectors.size else list(of(vectors, axis=0).tolist())

    return bound


def _observation_count(record: SpanRecord) -> int | None:
    vectors = _vectors(record)
    return None if vectors is None else len(vectors)


def _has_array(record: SpanRecord, name: str) -> bool:
    return f'"{name}"' in str(record.attributes.get(a.TOKEN_LAYOUT))


def _blocks(record: SpanRecord, name: str) -> list[Tokens]:
    """Return the tokens of a span's steps, if they may have this array."""
    if kinds.kind(record) == names.STEPS:
        rows: list[Mapping[str, Any]] = []
        if a.TOKEN_LAYOUT in str(record.attributes.get(a.STEPS_LAYOUT)):
            rows = [*blocks.rows(record.attributes)]
        found = [tokens.decode(row) for row in rows]
    else:
        found = [tokens.decode(record.attributes)] if _has_array(record, name) else []
    return [block for block in found if block is not None and getattr(block, name) is not None]


def _token_ids(record: SpanRecord) -> list[int] | None:
    found = [block.ids.tolist() for block in _blocks(record, "ids") if block.ids is not None]
    return [int(id_) for ids in found for id_ in ids] if found else None


def _log_ratio_sums(record: SpanRecord) -> list[float] | None:
    """Return sums for estimates of the divergence from the reference: of k1, k2 and k3, and the number."""
    ratios = [ratio for block in _blocks(record, "ref_logprobs") if (ratio := log_ratio(block)) is not None]
    ratio = np.concatenate(ratios) if ratios else np.empty(0)
    if not len(ratio):
        return None
    with np.errstate(over="ignore"):
        k3 = np.expm1(ratio) - ratio
    return [float(-ratio.sum()), float((ratio**2).sum() / 2), float(k3.sum()), float(len(ratio))]


def _entropy_sums(record: SpanRecord) -> list[float] | None:
    """Return the sum of the finite entropies of tokens, and their number."""
    found = [block.entropies for block in _blocks(record, "entropies") if block.entropies is not None]
    known = np.concatenate(found) if found else np.empty(0)
    known = known[np.isfinite(known)]
    return [float(known.sum(dtype=float)), float(len(known))] if len(known) else None


_ACTIONS: Final = (a.ACTION_VALUE, a.STEPS_LAYOUT)
_OBSERVATIONS: Final = (a.OBSERVATION_VALUE, a.STEPS_LAYOUT)
_TOKENS: Final = (a.TOKEN_LAYOUT, a.STEPS_LAYOUT)
BEHAVIOR: Final[dict[str, tuple[str, tuple[str, ...], Callable[[SpanRecord], Any]]]] = {
    "action_text": ("VARCHAR", (*_ACTIONS, a.GEN_AI_OUTPUT_MESSAGES), _action_text),
    "observation_text": ("VARCHAR", (*_OBSERVATIONS, a.GEN_AI_INPUT_MESSAGES), _observation_text),
    "action_counts": ("MAP(BIGINT, BIGINT)", _ACTIONS, _action_counts),
    "observation_low": ("DOUBLE[]", _OBSERVATIONS, _bound(np.min)),
    "observation_high": ("DOUBLE[]", _OBSERVATIONS, _bound(np.max)),
    "observation_count": ("BIGINT", _OBSERVATIONS, _observation_count),
    "token_ids": ("BIGINT[]", _TOKENS, _token_ids),
    "log_ratio_sums": ("DOUBLE[]", _TOKENS, _log_ratio_sums),
    "entropy_sums": ("DOUBLE[]", _TOKENS, _entropy_sums),
}
"""Columns that are computed from a span's content and tokens, as `DERIVED` in `spans`."""

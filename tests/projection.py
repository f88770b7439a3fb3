"""What a reader gets of an episode, a step or a run of which a transport kept something back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from mttp.codec.content import settled
from mttp.codec.plain import to_json
from mttp.codec.redaction import OFF, is_content
from mttp.codec.structures import flatten
from mttp.codec.tokens import ARRAY_KEYS
from mttp.codec.withholding import Withholding
from mttp.model.episodes import Agent, Call, Episode, Grade, Reward, Run, Step, Tokens
from mttp.model.nesting import from_json
from mttp.model.values import same
from mttp.semconv import attributes as a

__all__ = ["project"]

_OF_SCORING = {
    "raw": a.REWARD_RAW,
    "error": a.REWARD_ERROR,
    "explanation": a.GEN_AI_EVALUATION_EXPLANATION,
}
Value = TypeVar("Value", Episode, Step, Run)


def project(value: Value, withholding: Withholding) -> Value:
    """
    The value as it reads after a transport that withholds: `decode(keep(encode(x))) == project(x)`.

    An episode's steps spend its budget in order of index.
    What a store can't hold (long text, bytes, NaN, large traces) is not foretold, only named by the spans.
    """
    if isinstance(value, Episode):
        return _episode(value, withholding)
    if isinstance(value, Step):
        return _step(value, withholding, spent=0)[0]
    return _run(value, withholding)


@dataclass(slots=True)
class _Span:
    """What is kept of one span's content, and what its omissions will say."""

    withholding: Withholding
    missing: dict[str, str] = field(default_factory=dict)

    def omissions(self, stated: tuple[str, ...]) -> tuple[str, ...]:
        said = (f"{key}: {reason}" for key, reason in sorted(self.missing.items()))
        return tuple(dict.fromkeys((*stated, *said)))

    def content(self, key: str, value: Any) -> Any:
        """Content of any type; None where it is kept back."""
        if value is None:
            return None
        if not self.withholding.content:
            self.missing[key] = OFF
            return None
        hooked = self._hooked(key, value)
        flat = flatten(hooked, [])
        counted = hooked if flat is None else flat.numbers
        return None if self._is_long(key, counted, (np.ndarray, list, tuple)) else hooked

    def document(self, key: str, value: Any) -> Any:
        """Content that is recorded as JSON."""
        found = self.text(key, None if value is None else to_json(value, []))
        return None if found is None else from_json(found)

    def text(self, key: str, value: str | None) -> str | None:
        """Content that is text."""
        found = self.content(key, value)
        return found if found is None or isinstance(found, str) else to_json(found, [])

    def facts(self, prefix: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The user's own facts, of which arrays may be too long."""
        return {
            name: fact
            for name, fact in facts.items()
            if not self._is_long(f"{prefix}.{name}", fact, np.ndarray)
        }

    def extra(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes that this version does not know, content of other conventions among them."""
        kept = {key: self.content(key, value) if is_content(key) else value for key, value in found.items()}
        return {
            key: value
            for key, value in kept.items()
            if (value is not None or not is_content(key)) and not self._is_long(key, value, np.ndarray)
        }

    def faults(self, stated: tuple[str, ...]) -> tuple[str, ...]:
        """Of each fault at least its kind."""
        rule, found = self.withholding.rule, []
        for fault in stated:
            text, reason = rule.fault(fault)
            if text != fault:
                self.missing[a.FAULTS] = reason
            found.append(text)
        return tuple(dict.fromkeys(found))

    def scoring(self, value: Reward) -> dict[str, Any]:
        """The texts of a scoring."""
        return {name: self.text(key, getattr(value, name)) for name, key in _OF_SCORING.items()}

    def error(self, message: str | None) -> str | None:
        """The description of a span's status."""
        return self.text(a.OTEL_STATUS_DESCRIPTION, message) if message else None

    def _hooked(self, key: str, value: Any) -> Any:
        hook = self.withholding.redact
        if hook is None:
            return value
        try:
            result = settled(hook(key, copy.deepcopy(value)), [])
        except Exception as error:
            self.missing[key] = f"redaction raised {type(error).__name__}"
            return None
        if not same(result, value):
            self.missing[key] = "redacted"
        return result

    def _is_long(self, key: str, value: Any, kinds: Any) -> bool:
        limit = self.withholding.max_elements
        if limit is None or not isinstance(value, kinds) or (count := _elements(value)) <= limit:
            return False
        self.missing[key] = f"{count} elements, the limit is {limit}"
        return True

    def tokens(self, block: Tokens | None, spent: int) -> tuple[Tokens | None, int]:
        """A block with all its arrays or without them, and what is spent by then."""
        if block is None:
            return None, spent
        block = self._ids(block)
        arrays = {ARRAY_KEYS[name]: array for name, array in block.arrays().items()}
        size = sum(array.nbytes for array in arrays.values())
        why = self._over_elements(arrays) or self._over_budget(arrays, spent + size, size)
        if not why:
            return block, spent + size
        stated = f"{block.omitted_reason}; {why}" if block.omitted_reason else why
        return replace(block, **dict.fromkeys(Tokens.ARRAYS), alignment={}, omitted_reason=stated), spent

    def _ids(self, block: Tokens) -> Tokens:
        """A block with its token ids, others in their place, or none."""
        rule = self.withholding.rule
        for name in ("ids", "prompt_ids"):
            ids, key = getattr(block, name), ARRAY_KEYS[name]
            if ids is None:
                continue
            hooked, reason = None, OFF if not rule.content else "token ids are off"
            if rule.token_ids:
                hooked = self._hooked(key, ids)
                if hooked is not None and same(hooked, ids):
                    continue
                reason = self.missing[key]
            self.missing[key] = reason
            is_ids = (
                isinstance(hooked, np.ndarray) and hooked.shape == ids.shape and hooked.dtype.kind in "iu"
            )
            block = _with_ids(block, name, hooked if is_ids else None, reason)
        return block

    def _over_elements(self, arrays: Mapping[str, Any]) -> str:
        over = [key for key in sorted(arrays) if self._is_long(key, arrays[key], np.ndarray)]
        if not over:
            return ""
        self.missing |= {key: f"left out with {over[0]}" for key in arrays if key not in over}
        return f"{over[0]}: {self.missing[over[0]]}"

    def _over_budget(self, arrays: Mapping[str, Any], spent: int, size: int) -> str:
        budget = self.withholding.max_episode_bytes
        if budget is None or not size or spent <= budget:
            return ""
        why = f"{size} bytes are beyond the episode's {budget}"
        self.missing |= dict.fromkeys(arrays, why)
        return why


def _with_ids(block: Tokens, name: str, ids: Any, reason: str) -> Tokens:
    if ids is not None:
        return replace(block, **{name: ids})
    stated = block.omitted_reason
    if reason not in (stated or "").split("; "):
        stated = f"{stated}; {reason}" if stated else reason
    alignment = {other: aligned for other, aligned in block.alignment.items() if other != name}
    return replace(block, **{name: None}, alignment=alignment, omitted_reason=stated)


def _elements(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_elements, value)) if isinstance(value, (list, tuple)) else 1


def _episode(value: Episode, withholding: Withholding) -> Episode:
    root, spent, steps = _Span(withholding), 0, []
    for step in value.steps:
        kept, spent = _step(step, withholding, spent)
        steps.append(kept)
    root.scoring(value.reward)  # the root repeats the last scoring
    scorings = tuple(_reward(reward, withholding) for reward in value.rewards)
    kept_facts = {
        "inputs": root.document(a.INPUTS_JSON, value.inputs),
        "env_kwargs": root.document(a.ENV_KWARGS, value.env_kwargs or None) or {},
        "error_message": root.error(value.error_message),
        "faults": root.faults(value.faults),
        "final_observation": root.content(a.EPISODE_FINAL_OBSERVATION_VALUE, value.final_observation),
        "metadata": root.facts(a.METADATA, value.metadata),
        "extra": root.extra(value.extra),
    }
    return replace(
        value,
        **kept_facts,
        steps=tuple(steps),
        agents=tuple(_agent(agent, withholding) for agent in value.agents),
        rewards=scorings,
        reward=_reward(value.reward, withholding),
        omissions=root.omissions(value.omissions),
    )


def _agent(value: Agent, withholding: Withholding) -> Agent:
    span = _Span(withholding)
    span.scoring(value.reward)  # its span repeats the last scoring
    return replace(
        value,
        error_message=span.error(value.error_message),
        faults=span.faults(value.faults),
        metadata=span.facts(a.METADATA, value.metadata),
        extra=span.extra(value.extra),
        rewards=tuple(_reward(reward, withholding) for reward in value.rewards),
        reward=_reward(value.reward, withholding),
        omissions=span.omissions(value.omissions),
    )


def _step(value: Step, withholding: Withholding, spent: int) -> tuple[Step, int]:
    span = _Span(withholding)
    tokens, spent = span.tokens(value.tokens, spent)
    kept_facts = {
        "observation": span.content(a.OBSERVATION_VALUE, value.observation),
        "action": span.content(a.ACTION_VALUE, value.action),
        "frame": span.text(a.STEP_FRAME, value.frame),
        "reward_raw": span.text(a.STEP_REWARD_RAW, value.reward_raw),
        "error_message": span.error(value.error_message),
        "faults": span.faults(value.faults),
        "metadata": span.facts(a.METADATA, value.metadata),
        "extra": span.extra(value.extra),
    }
    kept = replace(
        value,
        **kept_facts,
        tokens=tokens,
        rewards=tuple(_reward(reward, withholding) for reward in value.rewards),
        calls=tuple(_call(call, withholding) for call in value.calls),
        omissions=span.omissions(value.omissions),
    )
    return kept, spent


def _reward(value: Reward, withholding: Withholding) -> Reward:
    span = _Span(withholding)
    return replace(
        value,
        **span.scoring(value),
        evidence=span.document(a.REWARD_EVIDENCE, value.evidence),
        grades=tuple(_grade(grade, withholding) for grade in value.grades),
        calls=tuple(_call(call, withholding) for call in value.calls),
    )


def _grade(value: Grade, withholding: Withholding) -> Grade:
    span = _Span(withholding)
    return replace(
        value,
        error=span.text(a.REWARD_ERROR, value.error),
        explanation=span.text(a.GEN_AI_EVALUATION_EXPLANATION, value.explanation),
        evidence=span.document(a.REWARD_EVIDENCE, value.evidence),
        parts=tuple(_grade(part, withholding) for part in value.parts),
        calls=tuple(_call(call, withholding) for call in value.calls),
    )


def _call(value: Call, withholding: Withholding) -> Call:
    span = _Span(withholding)
    return replace(
        value,
        arguments=span.content(a.GEN_AI_TOOL_CALL_ARGUMENTS, value.arguments),
        result=span.content(a.GEN_AI_TOOL_CALL_RESULT, value.result),
        error_message=span.error(value.error_message),
    )


def _run(value: Run, withholding: Withholding) -> Run:
    span = _Span(withholding)
    config = span.document(a.RUN_CONFIG_JSON, value.config)
    documents = span.content(a.SPEC_DOCUMENTS, list(value.spec_documents) or None)
    extra = span.extra(value.extra)
    kept = tuple(documents) if isinstance(documents, list) else ()
    faults = span.faults(value.faults)
    return replace(
        value,
        config=config,
        spec_documents=kept,
        faults=faults,
        extra=extra,
        omissions=span.omissions(value.omissions),
    )

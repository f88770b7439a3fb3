"""Withholding of values from a transport: content, arrays beyond a limit, unsupported types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mttp.codec import blocks, content, fitting, tokens
from mttp.codec.plain import Plain
from mttp.codec.redaction import RAISED, ContentRule, Redact, is_content
from mttp.semconv import attributes as a

__all__ = ["Kept", "Withholding", "degraded"]

_TOKEN_ARRAYS = frozenset(tokens.ARRAY_KEYS.values())
_LONG_BYTES = 1024
"""The size beyond which a value may be removed to make a span smaller."""
_SPAN_BYTES = 256
"""The estimated size of a span without attributes."""
_ROOT_SHARE = 1 / 16
"""The share of a trace's bytes that is reserved for its root, which is exported last."""


class Kept(NamedTuple):
    """A span's attributes after withholding."""

    values: Mapping[str, Plain]
    """The attributes; `mttp.omissions` names removed and changed ones."""
    spent: int
    """The episode's delivered bytes of token arrays; of all values if `max_trace_bytes` is set."""
    changed: bool
    """Whether anything was left out or changed."""
    status: str = ""
    """The description of the span's status."""
    marks: Sequence[Mapping[str, Plain]] = ()
    """The attributes of the span's events, then of its links."""
    raised: Sequence[str] = ()
    """The values removed because the redaction function raised, as `attribute: reason`."""


@dataclass(frozen=True, slots=True)
class Withholding:
    """The rules for withholding values of spans; `mttp.omissions` names what is withheld."""

    content: bool = True
    """Whether text and data of people, models and environments are delivered."""
    token_ids: bool | None = None
    """Whether token ids, from which a tokenizer restores the text, are delivered; None: as `content`."""
    redact: Redact | None = None
    """
    A function of the name and the value of each content attribute; its result replaces the value.

    None and an exception remove the value.
    """
    max_elements: int | None = None
    """The maximum number of elements of an array; of longer ones dtype, shape and counts are delivered."""
    max_episode_bytes: int | None = None
    """The maximum bytes of token arrays per episode, spent in order of delivery."""
    max_text_bytes: int | None = None
    """The maximum bytes of a text; longer text is cut, longer JSON is removed."""
    binary: bool = True
    """Whether bytes are delivered."""
    non_finite: bool = True
    """Whether NaN and infinities are delivered."""
    nested: bool = True
    """Whether maps and lists of several types are delivered as such; else as JSON text."""
    huge_integers: bool = True
    """Whether JSON text with integers of more than 64 bits is delivered."""
    max_trace_bytes: int | None = None
    """
    The approximate maximum bytes of a trace, spent in order of delivery, including token arrays.

    Beyond it, arrays are removed first, then content, then long values.
    """

    @property
    def rule(self) -> ContentRule:
        """The rule for content and token ids."""
        token_ids = self.content if self.token_ids is None else self.token_ids
        return ContentRule(content=self.content, token_ids=token_ids, redact=self.redact)

    def keep(
        self,
        values: Mapping[str, Plain],
        *,
        spent: int = 0,
        status: str = "",
        marks: Sequence[Mapping[str, Plain]] = (),
    ) -> Kept:
        """
        Return the deliverable copy of a span's attributes and of its other texts.

        `spent` is the number of bytes that the episode's earlier spans took, `status` the description of the
        span's status, and `marks` are the attributes of its events and links.
        """
        copy = self._keep_block(values, spent) if blocks.is_block(values) else self._keep_span(values, spent)
        copy = self._keep_rest(copy, status, marks)
        return copy if self.max_trace_bytes is None else self._within_trace(copy, spent, self.max_trace_bytes)

    def _keep_rest(self, copy: Kept, status: str, marks: Sequence[Mapping[str, Plain]]) -> Kept:
        """Apply the content rule to the status description, events and links."""
        rule, missing = self.rule, dict[str, str]()
        description = rule.text(a.OTEL_STATUS_DESCRIPTION, status, missing)
        kept_marks = [rule.mark(mark, missing) for mark in marks]
        if missing:
            copy = copy._replace(values=_with_omissions(dict(copy.values), missing), changed=True)
        raised = [*copy.raised, *_raised(missing)]
        return copy._replace(status=description, marks=kept_marks, raised=raised)

    def _keep_span(self, values: Mapping[str, Plain], spent: int) -> Kept:
        attributes: dict[str, Plain] = dict(values)
        missing: dict[str, str] = {}
        rule = self.rule
        if not rule.shows_all:
            rule.attributes(attributes, missing)
        raised = _raised(missing)
        for key, value in list(attributes.items()):
            if key not in _TOKEN_ARRAYS and self._is_too_long(key, value):
                missing[key] = self._limit(_count(value))
                del attributes[key]
        for keys in content.BY_VALUE.values():
            if keys.value not in attributes:
                attributes.pop(keys.structure, None)
        self._fit(attributes, missing)
        spent = self._keep_tokens(attributes, missing, spent)
        if not missing:
            return Kept(values, spent, False)
        return Kept(_with_omissions(attributes, missing), spent, True, raised=raised)

    def _fit(self, attributes: dict[str, Plain], missing: dict[str, str]) -> None:
        """Remove or cut values that the receiver does not support, in place."""
        if not self.binary:
            fitting.drop_binary(attributes, missing)
        if not self.non_finite:
            fitting.drop_non_finite(attributes, missing)
        if not self.nested:
            fitting.write_nested(attributes, missing)
        if not self.huge_integers:
            fitting.drop_huge_integers(attributes, missing)
        if self.max_text_bytes is not None:
            fitting.cut_texts(attributes, missing, self.max_text_bytes)

    def _within_trace(self, copy: Kept, spent: int, limit: int) -> Kept:
        """Return a span that fits into the bytes left for its trace, or its smallest form."""
        form = copy.values
        if a.EPISODE_SPAN_COUNT not in form:
            limit -= int(limit * _ROOT_SHARE)
        forms = degraded(form, f"the trace takes more than {limit} bytes")
        while spent + (size := _SPAN_BYTES + fitting.wire_bytes(form)) > limit:
            smaller = next(forms, None)
            if smaller is None:
                break
            form = smaller
        changed = copy.changed or form is not copy.values
        return copy._replace(values=form, spent=spent + size, changed=changed)

    def _keep_block(self, values: Mapping[str, Plain], spent: int) -> Kept:
        """Return the deliverable attributes of a block's steps and of the block itself."""
        limit = math.inf if self.max_elements is None else self.max_elements
        deliverable, raised, rule = values, list[str](), self.rule
        if not (rule.shows_all and blocks.longest(values) <= limit and self._fits(values)):
            rows = [self._keep_span(row, 0) for row in blocks.rows(values)]
            raised = [reason for row in rows for reason in row.raised]
            if any(row.changed for row in rows):
                deliverable = blocks.with_rows(values, [row.values for row in rows])
        if not rule.shows_all:
            attributes, missing = dict(deliverable), dict[str, str]()
            rule.attributes(attributes, missing)
            if missing:
                deliverable, raised = _with_omissions(attributes, missing), [*raised, *_raised(missing)]
        if not self.nested:
            deliverable = _flat(deliverable)
        if self.max_text_bytes is not None and len(deliverable[a.STEPS_LAYOUT]) > self.max_text_bytes:
            deliverable = _narrowed(deliverable, self.max_text_bytes)
        return Kept(deliverable, spent, deliverable is not values, raised=raised)

    def _fits(self, values: Mapping[str, Plain]) -> bool:
        """Return whether the receiver supports the types of a block's values."""
        has_bytes = not self.binary and any(map(fitting.has_binary, values.values()))
        return not has_bytes and (self.non_finite or not any(map(fitting.has_non_finite, values.values())))

    def _is_too_long(self, key: str, value: Plain) -> bool:
        """Return whether an array, or a list of content, exceeds `max_elements`."""
        is_array = isinstance(value, np.ndarray) or (is_content(key) and isinstance(value, (list, tuple)))
        return self.max_elements is not None and is_array and _count(value) > self.max_elements

    def _limit(self, count: int) -> str:
        return f"{count} elements, the limit is {self.max_elements}"

    def _keep_tokens(self, attributes: dict[str, Plain], missing: dict[str, str], spent: int) -> int:
        """Keep a token block or remove all its arrays, in place; return the bytes spent."""
        lengths = {key: len(attributes[key]) for key in _TOKEN_ARRAYS & attributes.keys()}
        size = sum(content.size(attributes[key]) for key in lengths)
        long = sorted(
            key for key in lengths if self.max_elements is not None and lengths[key] > self.max_elements
        )
        if long:
            reason = f"{long[0]}: {self._limit(lengths[long[0]])}"
            missing |= dict.fromkeys(lengths, f"left out with {long[0]}")
            missing |= {key: self._limit(lengths[key]) for key in long}
        elif self.max_episode_bytes is not None and size and spent + size > self.max_episode_bytes:
            reason = f"{size} bytes are beyond the episode's {self.max_episode_bytes}"
            missing |= dict.fromkeys(lengths, reason)
        else:
            return spent + size
        tokens.leave_out(attributes, reason)
        return spent


def degraded(values: Mapping[str, Plain], reason: str) -> Iterator[dict[str, Plain]]:
    """
    Yield smaller forms of a span's attributes: without arrays, then content, then long values.

    `mttp.omissions` names the removed attributes, with the reason.
    """
    attributes: dict[str, Plain] = dict(values)
    missing: dict[str, str] = {}
    if _TOKEN_ARRAYS & attributes.keys():
        missing |= dict.fromkeys(_TOKEN_ARRAYS & attributes.keys(), reason)
        tokens.leave_out(attributes, reason)
    for is_missing in (_is_array, _is_content, _is_long):
        removed = {key: reason for key, value in attributes.items() if is_missing(key, value)}
        missing |= removed
        attributes = {key: value for key, value in attributes.items() if key not in removed}
        yield _with_omissions(dict(attributes), missing)


def _is_array(_: str, value: Plain) -> bool:
    return isinstance(value, np.ndarray)


def _is_content(key: str, _: Plain) -> bool:
    return is_content(key) and key != a.FAULTS  # faults explain other problems of the span


def _is_long(_: str, value: Plain) -> bool:
    return content.size(value) > _LONG_BYTES


def _flat(values: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return a block without columns that are maps or lists of several types."""
    nested = [key for key, value in values.items() if fitting.is_nested(value)]
    if not nested:
        return values
    flat = dict(values)
    for key in nested:
        blocks.drop(flat, key)
    return _with_omissions(flat, dict.fromkeys(nested, "a column of lists is not supported by the receiver"))


def _narrowed(values: Mapping[str, Plain], max_bytes: int) -> dict[str, Plain]:
    """Return a block without its longest-described columns, so that the layout fits into `max_bytes`."""
    attributes, missing = dict(values), dict[str, str]()
    while (length := len(attributes[a.STEPS_LAYOUT])) > max_bytes:
        key = blocks.longest_described(attributes)
        blocks.drop(attributes, key)
        missing[key] = f"{a.STEPS_LAYOUT} takes {length} bytes, the limit is {max_bytes}"
    return _with_omissions(attributes, missing)


def _count(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_count, value)) if isinstance(value, (list, tuple)) else 1


def _raised(missing: Mapping[str, str]) -> list[str]:
    """Return the omissions of values whose redaction raised."""
    return [f"{key}: {reason}" for key, reason in missing.items() if reason.startswith(RAISED)]


def _with_omissions(attributes: dict[str, Plain], missing: Mapping[str, str]) -> dict[str, Plain]:
    """Add the missing values to `mttp.omissions`, in place."""
    omissions = [f"{key}: {missing[key]}" for key in sorted(missing)]
    attributes[a.OMISSIONS] = list(dict.fromkeys([*(attributes.get(a.OMISSIONS) or ()), *omissions]))
    return attributes

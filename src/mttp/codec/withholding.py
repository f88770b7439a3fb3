"""What a transport keeps back: content that is off or redacted, and arrays beyond a limit."""

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
"""A value that takes more may have to go where a span has to become smaller."""
_SPAN_BYTES = 256
"""What a span takes beside its attributes, roughly."""
_FOR_THE_ROOT = 1 / 16
"""The share of a trace's bytes that is left to its root, which comes last and says most."""


class Kept(NamedTuple):
    """A span's attributes as they may be delivered."""

    values: Mapping[str, Plain]
    """The attributes; what is missing or was changed is named in `mttp.omissions`."""
    spent: int
    """
    Bytes of token arrays that the episode has had delivered by now; of everything, where traces have a limit.
    """
    changed: bool
    """Whether anything was left out or changed."""
    status: str = ""
    """The description of its status."""
    marks: Sequence[Mapping[str, Plain]] = ()
    """The attributes of its events and of its links."""
    raised: Sequence[str] = ()
    """What was left out because the function that redacts raised, `attribute: reason` each."""


@dataclass(frozen=True, slots=True)
class Withholding:
    """What is kept back of every span; the rest is delivered, and says what is missing."""

    content: bool = True
    """Whether what people, models and environments wrote or did is delivered."""
    token_ids: bool | None = None
    """Whether token ids are delivered, by which a tokenizer reads the text; None: as `content` says."""
    redact: Redact | None = None
    """
    Called with the name and the value of each attribute that is content; its result is delivered instead.

    None keeps the value back, and so does an exception.
    """
    max_elements: int | None = None
    """The most elements of an array; of a longer one only type, shape and counts are delivered."""
    max_episode_bytes: int | None = None
    """The most bytes of token arrays that are delivered of one episode, spent in order of delivery."""
    max_text_bytes: int | None = None
    """The most bytes of a text; a longer one is cut, and one of JSON goes whole."""
    binary: bool = True
    """Whether bytes are delivered."""
    non_finite: bool = True
    """Whether NaN and the infinities are delivered."""
    nested: bool = True
    """Whether maps, and lists of several kinds, are delivered as such, and not as JSON text."""
    huge_integers: bool = True
    """Whether JSON text with integers of more than 64 bits is delivered."""
    max_trace_bytes: int | None = None
    """
    The most bytes of a trace, roughly, spent in order of delivery: arrays go first, then content, then texts.

    It counts token arrays too; `max_episode_bytes` limits an episode as a whole.
    """

    @property
    def rule(self) -> ContentRule:
        """What becomes of content."""
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
        What may be delivered of a span's attributes, which stay as they are, and of its other texts.

        `spent` is what the episode's earlier spans took of `max_episode_bytes`, `status` the description of
        its status, and `marks` are the attributes of its events and links.
        """
        kept = self._keep_block(values, spent) if blocks.is_block(values) else self._keep_span(values, spent)
        kept = self._keep_rest(kept, status, marks)
        return kept if self.max_trace_bytes is None else self._within_trace(kept, spent, self.max_trace_bytes)

    def _keep_rest(self, kept: Kept, status: str, marks: Sequence[Mapping[str, Plain]]) -> Kept:
        """The same with what may be delivered of the other texts."""
        rule, missing = self.rule, dict[str, str]()
        shown = rule.text(a.OTEL_STATUS_DESCRIPTION, status, missing)
        left = [rule.mark(mark, missing) for mark in marks]
        if missing:
            kept = kept._replace(values=_said(dict(kept.values), missing), changed=True)
        raised = [*kept.raised, *_raised(missing)]
        return kept._replace(status=shown, marks=left, raised=raised)

    def _keep_span(self, values: Mapping[str, Plain], spent: int) -> Kept:
        kept: dict[str, Plain] = dict(values)
        missing: dict[str, str] = {}
        rule = self.rule
        if not rule.shows_all:
            rule.attributes(kept, missing)
        raised = _raised(missing)
        for key, value in list(kept.items()):
            if key not in _TOKEN_ARRAYS and self._is_too_long(key, value):
                missing[key] = self._limit(_count(value))
                del kept[key]
        for keys in content.BY_VALUE.values():
            if keys.value not in kept:
                kept.pop(keys.structure, None)
        self._fit(kept, missing)
        spent = self._keep_tokens(kept, missing, spent)
        if not missing:
            return Kept(values, spent, False)
        return Kept(_said(kept, missing), spent, True, raised=raised)

    def _fit(self, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Take out or cut what the store can't hold."""
        if not self.binary:
            fitting.drop_binary(kept, missing)
        if not self.non_finite:
            fitting.drop_non_finite(kept, missing)
        if not self.nested:
            fitting.write_nested(kept, missing)
        if not self.huge_integers:
            fitting.drop_huge_integers(kept, missing)
        if self.max_text_bytes is not None:
            fitting.cut_texts(kept, missing, self.max_text_bytes)

    def _within_trace(self, kept: Kept, spent: int, limit: int) -> Kept:
        """As much of a span as its trace has space for."""
        form = kept.values
        if a.EPISODE_SPAN_COUNT not in form:
            limit -= int(limit * _FOR_THE_ROOT)
        forms = degraded(form, f"the trace takes more than {limit} bytes")
        while spent + (taken := _SPAN_BYTES + fitting.wire_bytes(form)) > limit:
            smaller = next(forms, None)
            if smaller is None:
                break
            form = smaller
        changed = kept.changed or form is not kept.values
        return kept._replace(values=form, spent=spent + taken, changed=changed)

    def spend(self, block: tokens.Block, spent: int) -> int | None:
        """
        What is spent once a span is delivered that has no content, and a token block as it was handed over.

        None where something of it may have to be kept back.
        """
        if not self.non_finite or self.max_text_bytes is not None or self.max_trace_bytes is not None:
            return None
        if tokens.has_ids(block) and not self.rule.shows_all:
            return None
        longest, taken = tokens.extent(block)
        if self.max_elements is not None and longest > self.max_elements:
            return None
        if self.max_episode_bytes is not None and taken and spent + taken > self.max_episode_bytes:
            return None
        return spent + taken

    def _keep_block(self, values: Mapping[str, Plain], spent: int) -> Kept:
        """What may be delivered of each of the steps that a block holds, and of what it says itself."""
        limit = math.inf if self.max_elements is None else self.max_elements
        kept, raised, rule = values, list[str](), self.rule
        if not (rule.shows_all and blocks.longest(values) <= limit and self._fits(values)):
            rows = [self._keep_span(row, 0) for row in blocks.rows(values)]
            raised = [said for row in rows for said in row.raised]
            if any(row.changed for row in rows):
                kept = blocks.with_rows(values, [row.values for row in rows])
        if not rule.shows_all:
            own, missing = dict(kept), dict[str, str]()
            rule.attributes(own, missing)
            if missing:
                kept, raised = _said(own, missing), [*raised, *_raised(missing)]
        if not self.nested:
            kept = _flat(kept)
        if self.max_text_bytes is not None and len(kept[a.STEPS_LAYOUT]) > self.max_text_bytes:
            kept = _narrowed(kept, self.max_text_bytes)
        return Kept(kept, spent, kept is not values, raised=raised)

    def _fits(self, values: Mapping[str, Plain]) -> bool:
        """Whether a store can hold the values of a block as they are; its texts stand in lists."""
        has_bytes = not self.binary and any(map(fitting.has_binary, values.values()))
        return not has_bytes and (self.non_finite or not any(map(fitting.has_non_finite, values.values())))

    def _is_too_long(self, key: str, value: Plain) -> bool:
        """Whether an array is beyond the limit; content may be an array that was recorded as a list."""
        is_array = isinstance(value, np.ndarray) or (is_content(key) and isinstance(value, (list, tuple)))
        return self.max_elements is not None and is_array and _count(value) > self.max_elements

    def _limit(self, count: int) -> str:
        return f"{count} elements, the limit is {self.max_elements}"

    def _keep_tokens(self, kept: dict[str, Plain], missing: dict[str, str], spent: int) -> int:
        """Leave a token block whole, or take all its arrays out; what is spent by then."""
        lengths = {key: len(kept[key]) for key in _TOKEN_ARRAYS & kept.keys()}
        taken = sum(content.size(kept[key]) for key in lengths)
        long = sorted(
            key for key in lengths if self.max_elements is not None and lengths[key] > self.max_elements
        )
        if long:
            reason = f"{long[0]}: {self._limit(lengths[long[0]])}"
            missing |= dict.fromkeys(lengths, f"left out with {long[0]}")
            missing |= {key: self._limit(lengths[key]) for key in long}
        elif self.max_episode_bytes is not None and taken and spent + taken > self.max_episode_bytes:
            reason = f"{taken} bytes are beyond the episode's {self.max_episode_bytes}"
            missing |= dict.fromkeys(lengths, reason)
        else:
            return spent + taken
        tokens.leave_out(kept, reason)
        return spent


def degraded(values: Mapping[str, Plain], reason: str) -> Iterator[dict[str, Plain]]:
    """
    A span's attributes, smaller and smaller: without arrays, without content too, without any long value.

    What is missing is named in `mttp.omissions`, with the reason.
    """
    kept: dict[str, Plain] = dict(values)
    missing: dict[str, str] = {}
    if _TOKEN_ARRAYS & kept.keys():
        missing |= dict.fromkeys(_TOKEN_ARRAYS & kept.keys(), reason)
        tokens.leave_out(kept, reason)
    for is_missing in (_is_array, _is_content, _is_long):
        gone = {key: reason for key, value in kept.items() if is_missing(key, value)}
        missing |= gone
        kept = {key: value for key, value in kept.items() if key not in gone}
        yield _said(dict(kept), missing)


def _is_array(_: str, value: Plain) -> bool:
    return isinstance(value, np.ndarray)


def _is_content(key: str, _: Plain) -> bool:
    return is_content(key) and key != a.FAULTS  # which say what else was wrong


def _is_long(_: str, value: Plain) -> bool:
    return content.size(value) > _LONG_BYTES


def _flat(values: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """A block without the columns that are lists of anything but values of one plain kind."""
    nested = [key for key, value in values.items() if fitting.is_nested(value)]
    if not nested:
        return values
    kept = dict(values)
    for key in nested:
        blocks.drop(kept, key)
    return _said(kept, dict.fromkeys(nested, "a column of lists is not supported by the receiver"))


def _narrowed(values: Mapping[str, Plain], max_bytes: int) -> dict[str, Plain]:
    """A block without the columns that its layout has most to say of, until that is short enough."""
    kept, missing = dict(values), dict[str, str]()
    while (length := len(kept[a.STEPS_LAYOUT])) > max_bytes:
        key = blocks.longest_described(kept)
        blocks.drop(kept, key)
        missing[key] = f"{a.STEPS_LAYOUT} takes {length} bytes, the limit is {max_bytes}"
    return _said(kept, missing)


def _count(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_count, value)) if isinstance(value, (list, tuple)) else 1


def _raised(missing: Mapping[str, str]) -> list[str]:
    """What is missing because the function that redacts raised."""
    return [f"{key}: {reason}" for key, reason in missing.items() if reason.startswith(RAISED)]


def _said(kept: dict[str, Plain], missing: Mapping[str, str]) -> dict[str, Plain]:
    said = [f"{key}: {missing[key]}" for key in sorted(missing)]
    kept[a.OMISSIONS] = list(dict.fromkeys([*(kept.get(a.OMISSIONS) or ()), *said]))
    return kept

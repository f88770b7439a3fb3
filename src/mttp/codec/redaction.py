"""Content rules: content is delivered, changed by a user-supplied function, or left out."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mttp.codec import content, tokens
from mttp.codec.plain import Plain, to_json
from mttp.model.interrupts import raise_interrupt
from mttp.model.values import same
from mttp.semconv import attributes as a
from mttp.semconv.registry import attribute, wanted
from mttp.semconv.values import AnnotationKind as Kind

__all__ = ["OFF", "ContentRule", "Redact", "is_content"]

Redact = Callable[[str, Any], Any]
"""A function of an attribute's name and value; its result replaces the value, None removes it."""
OFF = "content is off"
"""The reason in omissions if content is not delivered."""

_IDS = {a.TOKEN_IDS: "ids", a.TOKEN_PROMPT_IDS: "prompt_ids"}
_APART = frozenset({*content.STRUCTURES, *_IDS, a.FAULTS, a.ANNOTATION_VALUE})
"""Content attributes that `ContentRule` handles separately."""
_OF_OTHERS = (
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.event.content",
    "gen_ai.tool.definitions",
    "gen_ai.tool.message",
    "input.value",
    "output.value",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.prompt_template",
    "llm.function_call",
    "retrieval.documents",
    "tool.parameters",
    "traceloop.entity.input",
    "traceloop.entity.output",
)
"""Attributes and prefixes with content in OpenInference, OpenLLMetry and earlier GenAI conventions."""
_LABELS = frozenset({Kind.FACT, Kind.LABEL, Kind.OUTCOME, Kind.EVAL})
"""The kinds of annotations whose text is a label, and not content."""
_FAULT = re.compile(r"([a-z][a-z0-9_]*)(?:: (.*))?", re.DOTALL)
_UNNAMED = "fault"


@lru_cache(maxsize=4096)
def is_content(key: str) -> bool:
    """Return whether an attribute holds text or data of people, models or environments."""
    definition = attribute(key)
    is_own = definition is not None and definition.is_content
    return is_own or key in _OF_OTHERS or key.startswith(_BELOW)


_BELOW = tuple(f"{name}." for name in _OF_OTHERS)


@dataclass(frozen=True, slots=True)
class ContentRule:
    """The rule for a span's content, and for token ids, from which a tokenizer restores the text."""

    content: bool = True
    """Whether content is delivered."""
    token_ids: bool = True
    """Whether token ids are delivered."""
    redact: Redact | None = None
    """Called for each delivered value."""

    @property
    def shows_all(self) -> bool:
        """Whether everything is delivered unchanged."""
        return self.content and self.token_ids and self.redact is None

    def attributes(self, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Remove or change attributes in place; `missing` gets the reason of each by name."""
        if a.TOKEN_DATA in kept:
            self._unpack(kept, missing)
        for key in [key for key in kept if is_content(key) and key not in _APART]:
            self._attribute(key, kept, missing)
        if a.FAULTS in kept:
            self._faults(kept, missing)
        if a.ANNOTATION_VALUE in kept and _is_text(kept):
            self._attribute(a.ANNOTATION_VALUE, kept, missing)
        for key in _IDS.keys() & kept.keys():
            self._token_ids(key, kept, missing)

    def text(self, key: str, value: str, missing: dict[str, str]) -> str:
        """Apply the rule to a text that is not an attribute; empty if it is removed."""
        if not value or (self.content and self.redact is None):
            return value
        attributes: dict[str, Plain] = {key: value}
        self._attribute(key, attributes, missing)
        return str(attributes.get(key, ""))

    def mark(self, given: Mapping[str, Plain], missing: dict[str, str]) -> Mapping[str, Plain]:
        """Apply the rule to the attributes of an event or a link."""
        if self.content and self.redact is None:
            return given
        redacted = dict(given)
        for key in [key for key in redacted if is_content(key)]:
            self._attribute(key, redacted, missing)
        return redacted

    def _attribute(self, key: str, attributes: dict[str, Plain], missing: dict[str, str]) -> None:
        """Apply the rule to one attribute, in place."""
        if not self.content:
            missing[key] = OFF
            del attributes[key]
        elif self.redact is not None:
            keys = content.BY_VALUE.get(key)
            value = attributes[key]
            if keys is not None and keys.structure in attributes:
                value = content.decode(keys, attributes)
            is_listed = wanted(key) == "string[]" and isinstance(value, (list, tuple))
            redacted, reason = self._each(key, value) if is_listed else self._redacted(key, value)
            if redacted is None or not same(redacted, value):
                missing[key] = reason
                _replace(key, redacted, attributes)

    def _each(self, key: str, values: list[Plain]) -> tuple[Plain, str]:
        """Return the redacted texts of a list, without removed ones, and the reason."""
        results = [self._redacted(key, value) for value in values]
        texts = [_as_text(redacted) for redacted, _ in results if redacted is not None]
        raised = next((reason for _, reason in results if reason != "redacted"), "redacted")
        return texts or None, raised

    def _redacted(self, key: str, value: Plain) -> tuple[Plain, str]:
        assert self.redact is not None
        try:  # a copy, because the function may change it, and other transports deliver the value
            return content.settled(self.redact(key, copy.deepcopy(value)), []), "redacted"
        except Exception as error:
            raise_interrupt(error)
            return None, f"{RAISED} {type(error).__name__}"

    def _faults(self, attributes: dict[str, Plain], missing: dict[str, str]) -> None:
        """Apply the rule to the details of faults; their kinds are always delivered."""
        if self.content and self.redact is None:
            return
        redacted, faults = [], attributes[a.FAULTS]
        for fault in faults if isinstance(faults, (list, tuple)) else [faults]:
            text, reason = self.fault(str(fault))
            if text != fault:
                missing[a.FAULTS] = reason
            redacted.append(text)
        attributes[a.FAULTS] = list(dict.fromkeys(redacted))

    def fault(self, fault: str) -> tuple[str, str]:
        """Return a fault under the rule, and the reason if it changed."""
        if self.content and self.redact is None:
            return fault, ""
        parts = _FAULT.fullmatch(fault)
        kind, detail = parts.groups() if parts else (_UNNAMED, fault)
        if detail is None:
            return kind, ""
        if not self.content:
            return kind, OFF
        redacted, reason = self._redacted(a.FAULTS, detail)
        return kind if redacted is None else f"{kind}: {_as_text(redacted)}", reason

    def _unpack(self, attributes: dict[str, Plain], missing: dict[str, str]) -> None:
        """Unpack a token block's arrays; remove them if the layout can't be read."""
        try:
            tokens.unpack(attributes)
        except Exception as error:  # a layout that another program wrote
            raise_interrupt(error)
            attributes.pop(a.TOKEN_DATA, None)
            missing[a.TOKEN_DATA] = "the layout of its arrays can't be read"

    def _token_ids(self, key: str, attributes: dict[str, Plain], missing: dict[str, str]) -> None:
        """Apply the rule to token ids; a redacted array must have the same shape."""
        if not self.token_ids:
            missing[key] = OFF if not self.content else "token ids are off"
            tokens.leave_out(attributes, missing[key], names=[_IDS[key]])
        elif self.redact is not None:
            redacted, reason = self._redacted(key, attributes[key])
            if redacted is not None and same(redacted, attributes[key]):
                return
            missing[key] = reason
            if _are_ids(redacted, attributes[key]):
                attributes[key] = np.array(redacted, attributes[key].dtype)
            else:
                tokens.leave_out(attributes, reason, names=[_IDS[key]])


RAISED = "redaction raised"
"""The start of the reason if the function raised."""


def _is_text(attributes: Mapping[str, Plain]) -> bool:
    """Return whether an annotation's value is content."""
    is_number = isinstance(attributes[a.ANNOTATION_VALUE], (bool, int, float))
    return not is_number and attributes.get(a.ANNOTATION_KIND) not in _LABELS


def _are_ids(redacted: object, before: Any) -> bool:
    array = np.asarray(redacted) if isinstance(redacted, (np.ndarray, list, tuple)) else None
    return array is not None and array.dtype.kind in "iu" and array.shape == np.shape(before)


def _as_text(value: Plain) -> str:
    return value if isinstance(value, str) else to_json(value, [])


def _replace(key: str, value: Plain, attributes: dict[str, Plain]) -> None:
    """Replace a value with a function's result, encoded so that it can be decoded; None removes it."""
    keys = content.BY_VALUE.get(key)
    if value is None:
        del attributes[key]
    elif keys is not None:
        for stale in keys:
            attributes.pop(stale, None)
        attributes |= content.encode(keys, value, [], [])
    else:
        attributes[key] = _as_text(value) if wanted(key) == "string" else value

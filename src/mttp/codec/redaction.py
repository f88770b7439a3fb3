"""Content, wherever a span holds it: delivered as it is, changed by a function of the user's, or left out."""

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
from mttp.model.values import same
from mttp.semconv import attributes as a
from mttp.semconv.types import ATTRIBUTE_TYPES, CONTENT
from mttp.semconv.values import AnnotationKind as Kind

__all__ = ["OFF", "ContentRule", "Redact", "is_content"]

Redact = Callable[[str, Any], Any]
"""Called with the name and the value of an attribute; its result is delivered instead, and None is not."""
OFF = "content is off"
"""Why something is missing where content is not delivered."""

_IDS = {a.TOKEN_IDS: "ids", a.TOKEN_PROMPT_IDS: "prompt_ids"}
_APART = frozenset({*content.STRUCTURES, *_IDS, a.FAULTS, a.ANNOTATION_VALUE})
"""Content that is more, or less, than the value of one attribute."""
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
"""Attributes, and names below them, of OpenInference, OpenLLMetry and earlier conventions that hold texts."""
_LABELS = frozenset({Kind.FACT, Kind.LABEL, Kind.OUTCOME, Kind.EVAL})
"""Annotations that state a name, or a fact under a name of the user's own."""
_FAULT = re.compile(r"([a-z][a-z0-9_]*)(?:: (.*))?", re.DOTALL)
_UNNAMED = "fault"


@lru_cache(maxsize=4096)
def is_content(key: str) -> bool:
    """Whether an attribute holds what people, models or environments wrote."""
    return key in CONTENT or key in _OF_OTHERS or key.startswith(_BELOW)


_BELOW = tuple(f"{name}." for name in _OF_OTHERS)


@dataclass(frozen=True, slots=True)
class ContentRule:
    """What becomes of the content of a span, and of the token ids by which a tokenizer would read it."""

    content: bool = True
    """Whether content is delivered."""
    token_ids: bool = True
    """Whether token ids are."""
    redact: Redact | None = None
    """Asked for each value that is delivered."""

    @property
    def shows_all(self) -> bool:
        """Whether everything is delivered as it is."""
        return self.content and self.token_ids and self.redact is None

    def attributes(self, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Leave out or change attributes in place; `missing` names what is left out, with the reason."""
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
        """A text that is no attribute; empty where it is left out."""
        if not value or (self.content and self.redact is None):
            return value
        kept: dict[str, Plain] = {key: value}
        self._attribute(key, kept, missing)
        return str(kept.get(key, ""))

    def mark(self, given: Mapping[str, Plain], missing: dict[str, str]) -> Mapping[str, Plain]:
        """The attributes of an event or a link, as they may be delivered."""
        if self.content and self.redact is None:
            return given
        kept = dict(given)
        for key in [key for key in kept if is_content(key)]:
            self._attribute(key, kept, missing)
        return kept

    def _attribute(self, key: str, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Leave one attribute as it is, change it, or take it out."""
        if not self.content:
            missing[key] = OFF
            del kept[key]
        elif self.redact is not None:
            keys = content.BY_VALUE.get(key)
            value = kept[key] if keys is None or keys.structure not in kept else content.decode(keys, kept)
            is_listed = ATTRIBUTE_TYPES.get(key) == "string[]" and isinstance(value, (list, tuple))
            redacted, reason = self._each(key, value) if is_listed else self._redacted(key, value)
            if redacted is None or not same(redacted, value):
                missing[key] = reason
                _replace(key, redacted, kept)

    def _each(self, key: str, values: list[Plain]) -> tuple[Plain, str]:
        """Those texts of a list of which something is left."""
        answers = [self._redacted(key, value) for value in values]
        left = [_as_text(redacted) for redacted, _ in answers if redacted is not None]
        raised = next((reason for _, reason in answers if reason != "redacted"), "redacted")
        return left or None, raised

    def _redacted(self, key: str, value: Plain) -> tuple[Plain, str]:
        assert self.redact is not None
        try:  # a copy: the hook may change it, and other transports deliver the value too
            return content.settled(self.redact(key, copy.deepcopy(value)), []), "redacted"
        except Exception as error:
            return None, f"{RAISED} {type(error).__name__}"

    def _faults(self, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Leave of each fault at least the kind."""
        if self.content and self.redact is None:
            return
        shown, stated = [], kept[a.FAULTS]
        for fault in stated if isinstance(stated, (list, tuple)) else [stated]:
            text, reason = self.fault(str(fault))
            if text != fault:
                missing[a.FAULTS] = reason
            shown.append(text)
        kept[a.FAULTS] = list(dict.fromkeys(shown))

    def fault(self, fault: str) -> tuple[str, str]:
        """What is shown of a fault, and why that is not all."""
        if self.content and self.redact is None:
            return fault, ""
        found = _FAULT.fullmatch(fault)
        kind, detail = found.groups() if found else (_UNNAMED, fault)
        if detail is None:
            return kind, ""
        if not self.content:
            return kind, OFF
        redacted, reason = self._redacted(a.FAULTS, detail)
        return kind if redacted is None else f"{kind}: {_as_text(redacted)}", reason

    def _unpack(self, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Have each array of a packed token block by itself; bytes that can't be told apart are left out."""
        try:
            tokens.unpack(kept)
        except Exception:  # a layout that another program wrote
            del kept[a.TOKEN_DATA]
            missing[a.TOKEN_DATA] = "its arrays can't be told apart"

    def _token_ids(self, key: str, kept: dict[str, Plain], missing: dict[str, str]) -> None:
        """Leave token ids as they are, change them to as many others, or take them out."""
        if not self.token_ids:
            missing[key] = OFF if not self.content else "token ids are off"
            tokens.leave_out(kept, missing[key], names=[_IDS[key]])
        elif self.redact is not None:
            redacted, reason = self._redacted(key, kept[key])
            if redacted is not None and same(redacted, kept[key]):
                return
            missing[key] = reason
            if _are_ids(redacted, kept[key]):
                kept[key] = np.array(redacted, kept[key].dtype)
            else:
                tokens.leave_out(kept, reason, names=[_IDS[key]])


RAISED = "redaction raised"
"""How the reason begins where the function raised."""


def _is_text(kept: Mapping[str, Plain]) -> bool:
    """Whether an annotation states something in words of its own."""
    is_number = isinstance(kept[a.ANNOTATION_VALUE], (bool, int, float))
    return not is_number and kept.get(a.ANNOTATION_KIND) not in _LABELS


def _are_ids(given: object, before: Any) -> bool:
    array = np.asarray(given) if isinstance(given, (np.ndarray, list, tuple)) else None
    return array is not None and array.dtype.kind in "iu" and array.shape == np.shape(before)


def _as_text(value: Plain) -> str:
    return value if isinstance(value, str) else to_json(value, [])


def _replace(key: str, value: Plain, kept: dict[str, Plain]) -> None:
    """Put a hook's result in the place of a value, in a form that reads back; None takes the value out."""
    keys = content.BY_VALUE.get(key)
    if value is None:
        del kept[key]
    elif keys is not None:
        for stale in keys:
            kept.pop(stale, None)
        kept |= content.encode(keys, value, [], [])
    else:
        kept[key] = _as_text(value) if ATTRIBUTE_TYPES.get(key) == "string" else value

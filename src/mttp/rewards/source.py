"""The text of a spec as plain data that knows its lines: YAML's common part, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from mttp import regular_files
from mttp.errors import MissingExtra, SpecError

__all__ = ["MAX_BYTES", "Mark", "Place", "Source", "parse", "read"]

MAX_BYTES: Final = 1 << 20
"""Largest document that is read, and largest lock."""
MAX_NODES: Final = 100_000
"""Most values of a document, those that aliases repeat counted each time."""
MAX_DEPTH: Final = 64
"""Deepest nesting."""

Place: TypeAlias = tuple["str | int", ...]
"""Keys and positions that lead to a value of the document."""

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON takes as text, and YAML as a line's end or not at all."""
_INTEGER = re.compile(r"[-+]?[0-9]+")
_PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_DOTTED_WORD = re.compile(r"\.([a-zA-Z])")
_WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MOST_DIGITS = 300
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something is written."""

    line: int
    """From 1."""
    column: int
    """From 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document as it was read."""

    data: Any
    """Its plain data: dict, list, str, int, float, bool and None."""
    path: Path | None = None
    """Its file; None where it came from a text, or from Python."""
    values: Mapping[Place, Mark] = field(default_factory=dict)
    """Where each value begins."""
    keys: Mapping[Place, Mark] = field(default_factory=dict)
    """Where each key is, by the place of its value."""
    texts: Mapping[Place, str] = field(default_factory=dict)
    """What was written, for each value that is a number, true, false or null."""

    def error(self, reason: str, *at: str | int, key: bool = False) -> SpecError:
        """What is wrong with a value (or its key), to be raised; names the nearest place that is known."""
        mark = self.mark(*at, key=key)
        path = str(self.path) if self.path is not None else None
        if mark is None:
            return SpecError(reason, path=path)
        return SpecError(reason, path=path, line=mark.line, column=mark.column)

    def mark(self, *at: str | int, key: bool = False) -> Mark | None:
        """Where a value (or its key) is, or what it is in."""
        if key and at in self.keys:
            return self.keys[at]
        known = (self.values[at[:length]] for length in range(len(at), -1, -1) if at[:length] in self.values)
        return next(known, None)


def read(path: Path) -> Source:
    """The document in a file; raises SpecError for what can't be read."""
    try:
        raw = regular_files.read(path, MAX_BYTES)
    except OSError as error:
        raise SpecError(f"can't be read: {error.strerror or error}", path=str(path)) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(f"is not UTF-8: {error.reason}", path=str(path), line=line) from error
    return parse(text, path=path)


def parse(text: str, *, path: Path | None = None) -> Source:
    """
    The document in a text.

    YAML as its version 1.2 reads plain words (`yes` and `1:30` are text), without tags or merged keys;
    aliases are repeated. JSON is part of that. Raises SpecError for anything else.
    """
    reader = _Reader(path)
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise reader.error(f"is larger than {MAX_BYTES:,} bytes, which no reward spec is")
    text = _as_yaml(text, reader)
    if found := _UNPRINTABLE.search(text):
        line, column = _position(text, found.start())
        raise reader.error(f"has the control character {found[0]!a}", Mark(line, column))
    return reader.read(text)


def _position(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _as_yaml(text: str, reader: _Reader) -> str:
    """JSON as YAML's parsers take it, line for line; other text as it is."""
    if reader.path is None or reader.path.suffix != ".json":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return text
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise reader.error(f"is not JSON: {error.msg}", Mark(error.lineno, error.colno)) from error
    except (ValueError, RecursionError) as error:
        raise reader.error(f"is not JSON that can be read: {error}") from error
    text = _ESCAPE.sub(_unescaped, text).replace("\t", " ")
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _unescaped(found: re.Match[str]) -> str:
    """Surrogate pairs and `\\/` are escapes that YAML lacks."""
    if found[1]:
        return bytes.fromhex(found[1] + found[2]).decode("utf-16-be")
    return "/" if found[3] == "/" else found[0]


@dataclass
class _Reader:
    """Events of a YAML parser, made into plain data."""

    path: Path | None
    nodes: int = 0
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    values: dict[Place, Mark] = field(default_factory=dict)
    keys: dict[Place, Mark] = field(default_factory=dict)
    texts: dict[Place, str] = field(default_factory=dict)

    def error(self, reason: str, mark: Mark | None = None) -> SpecError:
        path = None if self.path is None else str(self.path)
        if mark is None:
            return SpecError(reason, path=path)
        return SpecError(reason, path=path, line=mark.line, column=mark.column)

    def read(self, text: str) -> Source:
        data = None
        for kind, event, events in self._documents(text):
            if kind == "second":
                raise self.error("holds more than one document; write one file for each", _mark(event))
            data = self._value(event, events, ())
        if not self.values:
            raise self.error("is empty")
        return Source(data=data, path=self.path, values=self.values, keys=self.keys, texts=self.texts)

    def _documents(self, text: str) -> Iterator[tuple[str, Any, Iterator[Any]]]:
        """The first event of each document, with those that follow it."""
        events = self._events(text)
        for event in events:
            if type(event).__name__ == "DocumentStartEvent":
                yield ("second" if self.values else "first"), next(events), events

    def _events(self, text: str) -> Iterator[Any]:
        yaml = _yaml()
        try:
            yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            where = error.problem_mark or error.context_mark
            what = ", ".join(part for part in (error.context, error.problem) if part)
            mark = Mark(where.line + 1, where.column + 1) if where else None
            raise self.error(f"is not YAML: {what}", mark) from error
        except yaml.YAMLError as error:
            raise self.error(f"is not YAML: {error}") from error

    def _value(self, event: Any, events: Iterator[Any], at: Place) -> Any:
        mark = _mark(event)
        self._count(1, mark)
        if len(at) > MAX_DEPTH:
            raise self.error(f"is nested more than {MAX_DEPTH} deep", mark)
        self.values[at] = mark
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event.anchor, at, mark)
        if event.tag is not None and not (kind == "ScalarEvent" and event.tag == "!"):
            raise self.error(f"has the tag {event.tag}; a reward spec is plain data, without tags", mark)
        before = self.nodes
        if kind == "ScalarEvent":
            value = self._scalar(event, at)
        else:
            value = (self._list if kind == "SequenceStartEvent" else self._mapping)(events, at)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before + 1)
        return value

    def _alias(self, anchor: str, at: Place, mark: Mark) -> Any:
        if anchor not in self.anchors:
            raise self.error(f"*{anchor} is the alias of nothing that stands before it", mark)
        value, nodes = self.anchors[anchor]
        self._count(nodes, mark)
        if len(at) + _height(value) > MAX_DEPTH:
            raise self.error(f"is nested more than {MAX_DEPTH} deep", mark)
        return value

    def _count(self, nodes: int, mark: Mark) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(f"has more than {MAX_NODES:,} values, counting what aliases repeat", mark)

    def _scalar(self, event: Any, at: Place) -> Any:
        if not event.implicit[0]:
            return event.value
        value = self._plain(event.value, _mark(event))
        if not isinstance(value, str):
            self.texts[at] = event.value
        return value

    def _plain(self, text: str, mark: Mark) -> Any:
        """What an unquoted word is."""
        if text in _WORDS:
            return _WORDS[text]
        if len(text) > _MOST_DIGITS and _INTEGER.fullmatch(text):
            raise self.error(f"has an integer of {len(text):,} digits", mark)
        if _INTEGER.fullmatch(text):
            return int(text)
        if _PREFIXED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(_DOTTED_WORD.sub(r"\1", text))
        return text

    def _list(self, events: Iterator[Any], at: Place) -> list[Any]:
        found: list[Any] = []
        for event in events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            found.append(self._value(event, events, (*at, len(found))))
        return found

    def _mapping(self, events: Iterator[Any], at: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if type(event).__name__ == "MappingEndEvent":
                break
            key = self._key(event, found)
            self.keys[(*at, key)] = _mark(event)
            found[key] = self._value(next(events), events, (*at, key))
        return found

    def _key(self, event: Any, found: Mapping[str, Any]) -> str:
        mark = _mark(event)
        if type(event).__name__ != "ScalarEvent" or event.tag is not None:
            raise self.error("has a key that is no plain word", mark)
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            raise self.error("merges a mapping with <<; write out what it should have", mark)
        if key in found:
            raise self.error(f"has the key {key!r} twice", mark)
        return key


def _height(value: Any) -> int:
    """How deep the lists and mappings in a value go; of a plain one 0."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _height(item) for item in inside), default=0)


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(package="pyyaml", extra="spec", purpose="reading a reward spec") from error
    return yaml

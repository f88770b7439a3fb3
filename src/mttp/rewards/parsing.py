"""Parsing of spec files, a subset of YAML that includes JSON, into plain data with line numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from mttp.errors import MissingExtra, SpecError
from mttp.otlp import regular_files

MAX_BYTES: Final = 1 << 20
"""The maximum size of a spec file, and of a lock file."""
MAX_NODES: Final = 100_000
"""The maximum number of values in a document; values repeated by aliases count each time."""
MAX_DEPTH: Final = 64
"""The maximum nesting depth."""

Place: TypeAlias = tuple["str | int", ...]
"""The keys and indices that lead to a value of the document."""

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON accepts in text and that YAML treats as line ends or rejects."""
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
class SourceMark:
    """A position in a spec file."""

    line: int
    """The line, from 1."""
    column: int
    """The column, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSource:
    """A parsed document with the positions of its keys and values."""

    data: Any
    """Plain data: dict, list, str, int, float, bool and None."""
    path: Path | None = None
    """The file; None for text and for specs built in Python."""
    values: dict[Place, SourceMark] = field(default_factory=dict)
    """The position of each value."""
    keys: dict[Place, SourceMark] = field(default_factory=dict)
    """The position of each key, by the place of its value."""
    texts: dict[Place, str] = field(default_factory=dict)
    """The source text of each number, true, false and null."""

    def error(self, reason: str, *at: str | int, key: bool = False) -> SpecError:
        """Return a SpecError at a value (or its key), or at the nearest enclosing value with a position."""
        return self.error_at(self.mark(*at, key=key), reason)

    def error_at(self, mark: SourceMark | None, reason: str) -> SpecError:
        """Return a SpecError at a line and column."""
        line, column = (None, None) if mark is None else (mark.line, mark.column)
        return SpecError(reason, path=str(self.path) if self.path else None, line=line, column=column)

    def mark(self, *at: str | int, key: bool = False) -> SourceMark | None:
        """Return the position of a value (or its key), or of the nearest enclosing value."""
        if key and at in self.keys:
            return self.keys[at]
        known = (self.values[at[:length]] for length in range(len(at), -1, -1) if at[:length] in self.values)
        return next(known, None)


def read(path: Path) -> SpecSource:
    """Parse the document in a file; raises SpecError when it can't be read."""
    try:
        raw = regular_files.read(path, MAX_BYTES)
    except OSError as error:
        raise SpecError(f"can't read the file: {error.strerror or error}", path=str(path)) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reason = f"not valid UTF-8: {error.reason}; save it as UTF-8"
        raise SpecError(reason, path=str(path), line=line) from error
    return parse(text, path=path)


def parse(text: str, *, path: Path | None = None) -> SpecSource:
    """
    Parse the document in a text.

    Plain words follow YAML 1.2 (`yes` and `1:30` are text). Tags and merge keys are errors; aliases are
    expanded. JSON is accepted as a subset. Raises SpecError for anything else.
    """
    source = SpecSource(data=None, path=path)
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise source.error(f"the document has {size:,} bytes, and the limit is {MAX_BYTES:,}")
    text = _as_yaml(text, source)
    if match := _UNPRINTABLE.search(text):
        start = match.start()
        mark = SourceMark(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        raise source.error_at(mark, f"the control character {match[0]!a} is not allowed; remove it")
    return replace(source, data=_YamlReader(source, _events(text, source)).document())


def _as_yaml(text: str, source: SpecSource) -> str:
    """Return JSON rewritten line by line so that a YAML parser accepts it; other text unchanged."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        if source.path is None or source.path.suffix != ".json":
            return text
        if isinstance(error, json.JSONDecodeError):
            mark = SourceMark(error.lineno, error.colno)
            raise source.error_at(mark, f"not valid JSON: {error.msg}") from error
        raise source.error(f"can't read the JSON: {error}") from error
    text = _ESCAPE.sub(_unescaped, text).replace("\t", " ")
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _unescaped(match: re.Match[str]) -> str:
    """Replace surrogate pairs and `\\/`, which YAML does not know as escapes."""
    if match[1]:
        return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")
    return "/" if match[3] == "/" else match[0]


def _events(text: str, source: SpecSource) -> Iterator[Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(package="pyyaml", extra="spec", purpose="reading YAML") from error
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        mark = SourceMark(where.line + 1, where.column + 1) if where else None
        raise source.error_at(mark, f"not valid YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise source.error(f"not valid YAML: {error}") from error


@dataclass
class _YamlReader:
    """
    Builds plain data from the events of a YAML parser.

    Events and not the parser's tree, because libyaml overflows the stack on deep nesting while it builds one.
    """

    source: SpecSource
    events: Iterator[Any]
    nodes: int = 0
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def document(self) -> Any:
        data = None
        for event in self.events:
            if type(event).__name__ == "DocumentStartEvent":
                if self.source.values:
                    reason = "the file has more than one YAML document; write one file for each spec"
                    raise self.source.error_at(_mark(next(self.events)), reason)
                data = self._value(next(self.events), ())
        if not self.source.values:
            raise self.source.error("the document is empty")
        return data

    def _until(self, end: str) -> Iterator[Any]:
        for event in self.events:
            if type(event).__name__ == end:
                return
            yield event

    def _value(self, event: Any, at: Place) -> Any:
        mark = _mark(event)
        self._count(1, len(at), mark)
        self.source.values[at] = mark
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event.anchor, at, mark)
        if event.tag is not None and not (kind == "ScalarEvent" and event.tag == "!"):
            reason = f"the YAML tag {event.tag} is not allowed; write plain data"
            raise self.source.error_at(mark, reason)
        before = self.nodes
        if kind == "ScalarEvent":
            value = self._scalar(event, at)
        else:
            value = (self._list if kind == "SequenceStartEvent" else self._mapping)(at)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before + 1)
        return value

    def _alias(self, anchor: str, at: Place, mark: SourceMark) -> Any:
        if anchor not in self.anchors:
            raise self.source.error_at(mark, f"the alias *{anchor} has no anchor &{anchor} before it")
        value, nodes = self.anchors[anchor]
        self._count(nodes, len(at) + _height(value), mark)
        return value

    def _count(self, nodes: int, depth: int, mark: SourceMark) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            reason = f"the document has more than {MAX_NODES:,} values, counting those that aliases repeat"
            raise self.source.error_at(mark, reason)
        if depth > MAX_DEPTH:
            raise self.source.error_at(mark, f"the document is nested more than {MAX_DEPTH} levels deep")

    def _scalar(self, event: Any, at: Place) -> Any:
        if not event.implicit[0]:
            return event.value
        value = self._plain(event.value, _mark(event))
        if not isinstance(value, str):
            self.source.texts[at] = event.value
        return value

    def _plain(self, text: str, mark: SourceMark) -> Any:
        """Return the value of an unquoted word."""
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            if len(text) > _MOST_DIGITS:
                reason = f"an integer has {len(text):,} digits, and the limit is {_MOST_DIGITS}; quote it"
                raise self.source.error_at(mark, reason)
            return int(text)
        if _PREFIXED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(_DOTTED_WORD.sub(r"\1", text))
        return text

    def _list(self, at: Place) -> list[Any]:
        items = enumerate(self._until("SequenceEndEvent"))
        return [self._value(event, (*at, index)) for index, event in items]

    def _mapping(self, at: Place) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for event in self._until("MappingEndEvent"):
            key = self._key(event, entries)
            self.source.keys[(*at, key)] = _mark(event)
            entries[key] = self._value(next(self.events), (*at, key))
        return entries

    def _key(self, event: Any, entries: Mapping[str, Any]) -> str:
        mark = _mark(event)
        if type(event).__name__ != "ScalarEvent" or event.tag is not None:
            raise self.source.error_at(mark, "a key must be text, and this one is a collection or has a tag")
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            raise self.source.error_at(mark, "the merge key << is not allowed; write out the merged keys")
        if key in entries:
            raise self.source.error_at(mark, f"the key {key!r} occurs twice; remove one")
        return key


def _height(value: Any) -> int:
    """Return the nesting depth of a value, 0 for a scalar."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _height(item) for item in inside), default=0)


def _mark(event: Any) -> SourceMark:
    return SourceMark(event.start_mark.line + 1, event.start_mark.column + 1)

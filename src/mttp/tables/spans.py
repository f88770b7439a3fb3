"""The table of spans: a row a span, a typed column an attribute, from any source that can be scanned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, Final, NamedTuple

from mttp.codec import annotations as annotation_codec
from mttp.codec import (
    blocks,
    components,
    content,
    evals,
    groups,
    kinds,
    shares,
    steps,
    templates,
    updates,
)
from mttp.codec.duplicates import copy_key, fullness
from mttp.codec.summary_fields import FAULTS_OF_STEPS, OMISSIONS_OF_STEPS, faults, omitted, step_scorings
from mttp.model.chat import message_lines, messages, text_of
from mttp.model.gradings import gradings
from mttp.model.nesting import from_json
from mttp.model.spans import KEPT_LISTS, SCORE_COLUMN, SpanRecord
from mttp.reading.jsonable import jsonable, to_json
from mttp.reading.lines import Rows
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv import spans as names
from mttp.tables.arrow import encode
from mttp.tables.behavior import BEHAVIOR, is_model_call, recorded_messages

__all__ = [
    "CONTENT",
    "DERIVED",
    "JSON",
    "NUMBER",
    "SPAN_COLUMNS",
    "SpanRows",
    "all_rows",
    "column_type",
    "labels",
    "needs_arrays",
]

NUMBER: Final = ".number"
"""Ends the name of the second column of an attribute of any type: its value if that is a number."""
JSON: Final = ".json"
"""
Ends the name of a column with an attribute as JSON: content as it is decoded, and all items of a template.

That of `EXTRA` has the attributes that this version of the convention does not know.
"""
EXTRA: Final = "mttp.extra"
_LONGEST_LABEL: Final = 100
_ROWS: Final = 10_000
"""Spans that become rows together."""
_TYPES: Final = {
    "string": "VARCHAR",
    "int": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string[]": "VARCHAR[]",
    "int[]": "BIGINT[]",
    "double[]": "DOUBLE[]",
    "any": "VARCHAR",
}

SPAN_COLUMNS: Final = {
    "trace_id": "VARCHAR",
    "span_id": "VARCHAR",
    "copy_of": "VARCHAR",
    "parent_id": "VARCHAR",
    "name": "VARCHAR",
    "type": "VARCHAR",
    "start_time": "BIGINT",
    "end_time": "BIGINT",
    "status_code": "BIGINT",
    "status_message": "VARCHAR",
    "omitted": "BIGINT",
    "size": "BIGINT",
    "share": "DOUBLE",
}
"""
Columns that every span has, with their types.

`type` is that of the convention, such as `episode` or `step`; empty for spans that are not of it.
Times are in nanoseconds since the Unix epoch. `copy_of` tells which steps a block of steps has, since the
ids of its copies differ; null for other spans. `omitted` is the number of attributes that a transport left
out, `size` that of the attributes, events and links that are there. `share` is that with which samplers keep
such a trace, by the trace state.
"""


def _span_cells(records: Sequence[SpanRecord]) -> dict[str, list[Any]]:
    """Return the values of the columns that every span has."""
    fields = ("trace_id", "span_id", "parent_id", "name", "start_time", "end_time", "status_code")
    cells: dict[str, list[Any]] = {name: [*map(attrgetter(name), records)] for name in fields}
    fullnesses = [*map(fullness, records)]
    return cells | {
        "copy_of": [_copy_of(record) for record in records],
        "type": [*map(kinds.kind, records)],
        "status_message": [record.status_message for record in records],
        "omitted": [-negative for negative, _ in fullnesses],
        "size": [size for _, size in fullnesses],
        "share": [shares.of_state(record.trace_state) for record in records],
    }


def _copy_of(record: SpanRecord) -> str | None:
    key = copy_key(record) if a.STEPS_COUNT in record.attributes else ""
    return None if isinstance(key, str) else str(key)


def _scores(record: SpanRecord) -> list[tuple[str, float]] | None:
    if a.STEPS_COUNT in record.attributes:
        return [*_summed_scores(record).items()] or None
    return [*components.scores(record.attributes)[0].items()] or None


def _summed_scores(record: SpanRecord) -> dict[str, float]:
    """Return the scores of a block's steps by component, summed."""
    scores: dict[str, list[float]] = {}
    for _, _, scored in step_scorings(record):
        for name, score in scored.components.items():
            scores.setdefault(name, []).append(score)
    return {name: _sum(scores[name]) for name in sorted(scores)}


def _sum(values: Sequence[float]) -> float:
    """Return the sum, which is infinite where the sum of finite numbers overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return sum(values)


def _score_statuses(record: SpanRecord) -> list[tuple[str, str]] | None:
    return [*components.scores(record.attributes)[1].items()] or None


def labels(attributes: Mapping[str, Any]) -> list[tuple[str, str | None]] | None:
    """Return the labels of a span with these attributes; None without any."""
    values = templates.decode(a.METADATA, attributes)
    return [(name, _label(value)) for name, value in values.items()] or None


def _label(value: object) -> str | None:
    """Return a number, a boolean or a short text as text: the values by which episodes can be sliced."""
    text = str(value) if isinstance(value, (str, int, float)) else None
    return text if text is not None and len(text) <= _LONGEST_LABEL else None


def _prompt(record: SpanRecord) -> str | None:
    """Return the text that a model was given: of a step, of the first step of a block, or of a call."""
    if is_model_call(record):
        return _content_text(recorded_messages(record, a.GEN_AI_INPUT_MESSAGES))
    return next(iter(_step_texts(record, content.OBSERVATION)), None)


def _completion(record: SpanRecord) -> str | None:
    """Return the text that a model answered: of a step, of the steps of a block, or of a call."""
    if is_model_call(record):
        return _content_text(recorded_messages(record, a.GEN_AI_OUTPUT_MESSAGES))
    texts = [text for text in _step_texts(record, content.ACTION) if text is not None]
    return BETWEEN_ACTIONS.join(texts) if texts else None


BETWEEN_ACTIONS: Final = "\n\n"
"""Separates the texts of actions and of messages."""


def _step_texts(record: SpanRecord, keys: content.ContentKeys) -> list[str | None]:
    kind = kinds.kind(record)
    if kind == names.STEPS:
        return [_content_text(content.decode(keys, row)) for row in blocks.rows(record.attributes)]
    return [_content_text(content.decode(keys, record.attributes))] if kind == names.STEP else []


def _exchange(record: SpanRecord) -> list[str] | None:
    """Return texts that were said since the policy's last answer, or between it and a tool."""
    if is_model_call(record):
        asked = recorded_messages(record, a.GEN_AI_INPUT_MESSAGES)
        answered = recorded_messages(record, a.GEN_AI_OUTPUT_MESSAGES)
        return [*_new_texts(asked), *_new_texts(answered, whole=True)]
    kind = kinds.kind(record)
    if kind == names.STEPS:
        observations = [content.decode(content.OBSERVATION, row) for row in blocks.rows(record.attributes)]
        return [text for observation in observations for text in _new_texts(observation)]
    if kind == names.STEP:
        return _new_texts(content.decode(content.OBSERVATION, record.attributes))
    keys = (a.GEN_AI_TOOL_CALL_ARGUMENTS, a.GEN_AI_TOOL_CALL_RESULT)
    return [text for key in keys if (text := _lines(record.attributes.get(key)))]


def _lines(value: object) -> str | None:
    """Return a value as text, of a mapping a line per item: JSON would escape what a reader looks for."""
    if not isinstance(value, Mapping):
        return _text(value)
    return "\n".join(f"{name}: {_text(item)}" for name, item in value.items())


def _new_texts(value: object, *, whole: bool = False) -> list[str]:
    """Return a text, or those of the messages after the policy's last answer, or of all."""
    chat = messages(value) or []
    answers = [place for place, message in enumerate(chat) if message["role"] == "assistant" and not whole]
    new = chat[answers[-1] + 1 :] if answers else chat
    texts = ["\n".join(message_lines(message)) for message in new] if chat else [text_of(value)]
    return [text for text in texts if text]


def _content_text(value: object) -> str | None:
    """Return content as text: of messages their lines, of other data JSON."""
    chat = messages(value)
    if chat is not None:
        return BETWEEN_ACTIONS.join("\n".join(message_lines(message)) for message in chat)
    return _text(value)


def _step_gradings(record: SpanRecord) -> str | None:
    if a.STEPS_COUNT not in record.attributes:
        return None
    facts = ("component", "status", "error_type", "value")
    results = [
        {"index": index, **{name: getattr(grading, name) for name in facts}}
        for _, index, scored in step_scorings(record)
        for grading in gradings(scored, scope="step")
    ]
    return to_json(results) if results else None


DERIVED: Final[dict[str, tuple[str, tuple[str, ...], Callable[[SpanRecord], Any]]]] = {
    "scores": ("MAP(VARCHAR, DOUBLE)", (f"{a.REWARD_SCORE}.", SCORE_COLUMN), _scores),
    "score_statuses": ("MAP(VARCHAR, VARCHAR)", (f"{a.REWARD_SCORE_STATUS}.",), _score_statuses),
    "weights": (
        "MAP(VARCHAR, DOUBLE)",
        (f"{a.REWARD_WEIGHT}.",),
        lambda record: [*components.decode(a.REWARD_WEIGHT, record.attributes).items()],
    ),
    "step_gradings": ("VARCHAR", (SCORE_COLUMN,), _step_gradings),
    "fault_kinds": ("VARCHAR[]", (a.FAULTS, FAULTS_OF_STEPS), lambda record: [*faults(record.attributes)]),
    "omitted_names": (
        "VARCHAR[]",
        (a.OMISSIONS, OMISSIONS_OF_STEPS),
        lambda record: [*omitted(record.attributes)],
    ),
    "labels": ("MAP(VARCHAR, VARCHAR)", (f"{a.METADATA}.",), lambda record: labels(record.attributes)),
    "label": ("VARCHAR", (a.ANNOTATION_VALUE,), lambda record: _label(record.attributes[a.ANNOTATION_VALUE])),
    "prompt": ("VARCHAR", (a.OBSERVATION_VALUE, a.STEPS_LAYOUT, a.GEN_AI_INPUT_MESSAGES), _prompt),
    "completion": ("VARCHAR", (a.ACTION_VALUE, a.STEPS_LAYOUT, a.GEN_AI_OUTPUT_MESSAGES), _completion),
    "exchange": (
        "VARCHAR[]",
        (
            *(a.OBSERVATION_VALUE, a.STEPS_LAYOUT, a.GEN_AI_INPUT_MESSAGES, a.GEN_AI_OUTPUT_MESSAGES),
            *(a.GEN_AI_TOOL_CALL_ARGUMENTS, a.GEN_AI_TOOL_CALL_RESULT),
        ),
        _exchange,
    ),
    **BEHAVIOR,
}
"""
Columns that are computed from a span: their type, attributes that it has if it has a value, and the value.

`scores` are those of components by exact name, of a block of steps their sums; `score_statuses` has the
statuses of components without a score, and `weights` the weights. `labels` has the user-supplied values that
are labels as text, and null for each other value; `label` is that of an annotation. `prompt` and `completion`
are the text of observation and action, or of the messages of a call of a model; `exchange` are the texts of
messages that are new in an observation or call, and of arguments and results of tools. `step_gradings` are
the results of graders for the steps of a block, JSON. `fault_kinds` and `omitted_names` have the kind of each
fault and the attribute of each omission, also those of the steps of a block.

`action_text` is what the policy wrote, null beside `token_ids`, and `observation_text` what it was given
first. `action_counts` says how often it took each integer, and `observation_low` and `observation_high` bound
each dimension of `observation_count` vectors. `log_ratio_sums` are the sums over sampled tokens for k1, k2
and k3 of the divergence from the reference, and the number of tokens; `entropy_sums` are the sum of the
entropies of tokens, and the number of these.
"""

CONTENT: Final = frozenset({"prompt", "completion", "exchange"})
"""Columns of `DERIVED` that are slow to load, and are null unless a query asks for them."""


def column_type(column: str) -> str:
    """Return the SQL type of an attribute's column; raises KeyError for one that is not registered."""
    if column in DERIVED:
        return DERIVED[column][0]
    if (key := _document_key(column)) and (key == EXTRA or _is_any(key) or _is_text(key)):
        return "VARCHAR"
    if column.endswith(NUMBER) and _is_any(column.removesuffix(NUMBER)):
        return "DOUBLE"
    definition = registry.attributes()[column]
    type_ = _TYPES.get(definition.type, "VARCHAR")
    return f"MAP(VARCHAR, {type_})" if definition.is_template else type_


def _document_key(column: str) -> str:
    """Return the attribute that a column has as JSON; empty if it is the column of an attribute itself."""
    is_document = column.endswith(JSON) and column not in registry.attributes()
    return column.removesuffix(JSON) if is_document else ""


def _is_any(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.type == "any"


def _is_text(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.type == "string"


def _is_template(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.is_template


def needs_arrays(columns: Iterable[str]) -> bool:
    """Return whether some of these columns hold what a scan without arrays leaves out."""
    return any(map(_is_array, columns))


def _is_array(column: str) -> bool:
    key = column.removesuffix(NUMBER)
    if column in DERIVED and column not in CONTENT | BEHAVIOR.keys():
        return False
    if key in KEPT_LISTS or key == a.ANNOTATION_VALUE:  # lists among the latter are no labels, and no numbers
        return False
    if column in CONTENT | BEHAVIOR.keys() or _document_key(column):
        return True
    return column_type(column).endswith("[]") or (_is_any(key) and not _is_template(key))


class SpanRows:
    """
    Spans as rows, in the columns of `SPAN_COLUMNS` and those of these attributes.

    With `unpack`, a span of steps in columns is followed by a row for each of its steps, as if each had a
    span: its type is `step`, and its id tells segment, agent and index.
    """

    def __init__(self, columns: Sequence[str], unpack: bool) -> None:
        self._unpack = unpack
        self._sources = {name: _source(name) for name in columns}
        self._types = SPAN_COLUMNS | {name: column_type(name) for name in columns}
        self._records: list[SpanRecord] = []

    def __len__(self) -> int:
        return len(self._records)

    def columns_of(self, attribute: str) -> set[str]:
        """Return the columns whose values come from an attribute."""
        return {name for name, source in self._sources.items() if source.keys_among({attribute})}

    def add(self, record: SpanRecord) -> None:
        """Add a span."""
        self._records.append(record)
        if self._unpack and a.STEPS_COUNT in record.attributes:
            self._records += _unpacked(record)

    def rows(self) -> Iterator[Rows]:
        """Yield the spans as rows, if there are any, with the columns that have a value, and forget them."""
        import pyarrow as pa

        records, self._records = self._records, []
        if records:
            cells = _span_cells(records) | _attribute_cells(records, self._sources)
            columns = [encode(values, self._types[name]) for name, values in cells.items()]
            yield Rows(pa.RecordBatch.from_arrays(columns, names=[*cells]))


def all_rows(spans: Iterable[SpanRecord | Rows], into: SpanRows) -> Iterator[Rows]:
    """Yield spans as rows, in their order; those that are not rows yet become some by `into`."""
    for span in spans:
        if isinstance(span, Rows):
            yield from into.rows()
            yield span
            continue
        into.add(span)
        if len(into) >= _ROWS:
            yield from into.rows()
    yield from into.rows()


def _attribute_cells(
    records: Sequence[SpanRecord], sources: Mapping[str, _CellSource]
) -> dict[str, list[Any]]:
    """Return the values of the columns of which any of the spans has an attribute."""
    attributes = [record.attributes for record in records]
    names_in_use: set[str] = set().union(*attributes)
    cells = {}
    for column, (_, value) in sources.items():
        keys = sources[column].keys_among(names_in_use)
        if not keys:
            continue
        if value is None:
            (key,) = keys
            cells[column] = [mapping.get(key) for mapping in attributes]
        else:
            cells[column] = [
                None if keys.isdisjoint(record.attributes) else value(record) for record in records
            ]
    return cells


class _CellSource(NamedTuple):
    """Where the values of a column come from."""

    keys: tuple[str, ...]
    """Attributes, any of which a span has that has a value; a prefix ends with a dot. Empty: any."""
    value: Callable[[SpanRecord], Any] | None
    """The value of a span; None if it is that of the attribute."""

    def keys_among(self, attributes: Set[str]) -> Set[str]:
        """Return those of a span's attributes that are among these."""
        if not self.keys:
            return attributes
        prefixes = tuple(key for key in self.keys if key.endswith("."))
        return attributes & {*self.keys} | {key for key in attributes if key.startswith(prefixes)}


def _source(column: str) -> _CellSource:
    if column in DERIVED:
        return _CellSource(DERIVED[column][1], DERIVED[column][2])
    if key := _document_key(column):
        return _CellSource(() if key == EXTRA else (f"{key}." if _is_template(key) else key,), _document(key))
    key = column.removesuffix(NUMBER)
    if key != column:
        return _CellSource((key,), lambda record: _number(record.attributes.get(key)))
    if _is_template(column):
        return _CellSource((f"{column}.",), _map(column, _text if _is_any(column) else None))
    if _is_any(column):
        return _CellSource((column,), lambda record: _text(record.attributes.get(column)))
    if column_type(column).endswith("[]"):
        return _CellSource((column,), lambda record: _listed(record.attributes.get(column)))
    return _CellSource((column,), None)


def _unpacked(record: SpanRecord) -> Iterator[SpanRecord]:
    """Yield a span for each of the steps that a span has in columns."""
    kind = kinds.kind(record)
    if kind == names.STEPS:
        yield from blocks.spans(record)
    elif kind == names.ANNOTATE:
        yield from annotation_codec.spans(record)


def _map(prefix: str, value: Callable[[Any], Any] | None) -> Callable[[SpanRecord], Any]:
    def items(record: SpanRecord) -> list[tuple[str, Any]]:
        members = templates.decode(prefix, record.attributes)
        return [(name, value(item)) for name, item in members.items()] if value else [*members.items()]

    return items


def _document(key: str) -> Callable[[SpanRecord], str | None]:
    """Return the function that gives an attribute, the items of a template or `EXTRA` as JSON."""
    if key == EXTRA:
        return lambda record: _json(_extra(record) or None)
    if _is_template(key):
        return lambda record: _json(templates.decode(key, record.attributes) or None)
    if key in content.BY_VALUE:
        keys = content.BY_VALUE[key]
        return lambda record: _json(content.decode(keys, record.attributes))
    if _is_text(key):
        return lambda record: _json(_parsed(record.attributes.get(key)))
    return lambda record: _json(recorded_messages(record, key))


def _json(value: object) -> str | None:
    return None if value is None else to_json(value)


def _parsed(value: object) -> object:
    return from_json(value) if isinstance(value, str) else value


_KNOWN: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    names.STEP: (steps.KEYS, steps.TEMPLATES),
    names.GROUP: (groups.KEYS, (a.METRIC, a.METADATA)),
    names.UPDATE: (updates.KEYS, updates.TEMPLATES),
    names.EVAL_RESULT: (evals.RESULT_KEYS, ()),
    names.ANNOTATE: (annotation_codec.KEYS, annotation_codec.TEMPLATES),
}
"""Attributes and templates that the convention has for a type of spans."""


def _extra(record: SpanRecord) -> dict[str, Any]:
    known = _KNOWN.get(kinds.kind(record))
    return {} if known is None else templates.unknown(record.attributes, *known)


def _listed(value: object) -> Any:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, (list, tuple)) or hasattr(value, "dtype") else None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(jsonable(value), ensure_ascii=False)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

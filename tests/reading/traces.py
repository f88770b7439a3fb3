"""Episodes as the spans that are recorded of them, made by number, and files of such spans."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import zstandard

from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.json import encode_records
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a

START = 1_750_000_000_000_000_000
SECOND = 1_000_000_000
RUN = "run-1"
RESOURCE = {"service.name": "test", a.RUN_ID: RUN}
SCOPE = Scope(name="mttp", version="0.1.0", schema_url=SCHEMA_URL, resource=RESOURCE)


def trace_id(number: int) -> str:
    """The trace of episode `number`."""
    return f"{number + 1:08x}{'5' * 24}"


def span_id(number: int, position: int) -> str:
    """A span of episode `number`; its root is at position 0."""
    return f"{number + 1:08x}{position:08x}"


def episode(
    number: int,
    *,
    steps: int = 2,
    return_: float | None = None,
    marked: bool = False,
    components: dict[str, float] | None = None,
    scope: Scope = SCOPE,
    **root: Any,
) -> list[SpanRecord]:
    """
    The spans of a finished episode in the order in which they end: steps, scoring, root.

    The reward of each step is its index; episode `number` starts `number` seconds after the start.
    """
    trace, root_id, start = trace_id(number), span_id(number, 0), START + number * SECOND
    ours = {a.RUN_ID: RUN, a.EPISODE_ID: trace}

    def span(position: int, name: str, begin: int, end: int, attributes: dict[str, Any]) -> SpanRecord:
        return SpanRecord(
            trace_id=trace,
            span_id=span_id(number, position),
            parent_id=root_id if position else "",
            name=name,
            start_time=begin,
            end_time=end,
            attributes=ours | attributes,
            scope=scope,
        )

    spans = [span(900, "episode.start", start, start, {a.ENV_ID: "CartPole-v1"})] if marked else []
    for index in range(steps):
        begin = start + index * 1000
        paid = {a.STEP_INDEX: index, a.STEP_REWARD: float(index), a.STEP_REWARD_STATUS: "ok"}
        spans.append(span(1 + index, "step", begin, begin + 500, paid))
    if components is not None:
        scores = {f"{a.REWARD_SCORE}.{name}": score for name, score in components.items()}
        scored = {a.REWARD_VALUE: sum(components.values()), a.REWARD_STATUS: "ok", a.SPEC_NAME: "math"}
        end = start + steps * 1000
        spans.append(span(800, "reward math", end, end, scored | {a.SPEC_VERSION: "1.0"} | scores))
    paid_in_all = float(sum(range(steps))) if return_ is None else return_
    facts = {
        a.ENV_ID: "CartPole-v1",
        a.EPISODE_INDEX: number,
        a.EPISODE_STATUS: "completed",
        a.EPISODE_OUTCOME: "success",
        a.EPISODE_RETURN: paid_in_all,
        a.EPISODE_RETURN_BASIS: "steps" if return_ is None else "episode",
        a.EPISODE_LENGTH: steps,
        a.EPISODE_STEP_COUNT: steps,
        a.EPISODE_SPAN_COUNT: len(spans) + 1,
    }
    return [*spans, span(0, "episode CartPole-v1", start, start + SECOND, facts | root)]


def run(number: int = 0, *, ended: bool = True) -> list[SpanRecord]:
    """The span of a run, or only its start marker."""
    name = "run first" if ended else "run.start"
    start = START + number * SECOND
    return [
        SpanRecord(
            trace_id=f"{number:032x}".replace("0" * 8, "a" * 8, 1),
            span_id=f"{number + 1:016x}",
            name=name,
            start_time=start,
            end_time=start + SECOND,
            attributes={a.RUN_ID: RUN, a.RUN_NAME: "first", a.RUN_KIND: "train", a.RUN_STATUS: "completed"},
            scope=SCOPE,
        )
    ]


def foreign(number: int, *, trace: str | None = None) -> SpanRecord:
    """A span of another library."""
    return SpanRecord(
        trace_id=trace or f"{number:032x}".replace("0", "f", 1),
        span_id=f"{number:016x}".replace("0", "f", 1),
        name="GET",
        kind=3,
        start_time=START,
        end_time=START + 1,
        attributes={"http.request.method": "GET", "sizes": [1, 2]},
        scope=Scope(name="httpx"),
    )


def of_version(records: Iterable[SpanRecord], version: str) -> list[SpanRecord]:
    """The spans, following another version of the convention."""
    scope = replace(SCOPE, schema_url=SCHEMA_URL.rpartition("/")[0] + f"/{version}")
    return [replace(record, scope=scope) for record in records]


def lines(records: Sequence[SpanRecord], *, per_line: int = 10_000) -> list[bytes]:
    """OTLP JSON lines of so many spans each."""
    blocks = [records[at : at + per_line] for at in range(0, len(records), per_line)]
    return [line for block in blocks for line in encode_records(block)]


def write(path: str | Path, records: Sequence[SpanRecord], **how: Any) -> Path:
    """A file of these spans, compressed as its suffix says."""
    return write_bytes(path, b"".join(lines(records, **how)))


def write_bytes(path: str | Path, data: bytes) -> Path:
    """A file of these bytes, compressed as its suffix says."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    path.write_bytes(data)
    return path


def part(number: int, *, rewards: list[float], score: float | None = None) -> list[SpanRecord]:
    """What another process did of episode `number`: a step for each reward, a scoring, and its end."""
    step, scoring, _ = episode(number, steps=1, components={"c": 1.0})
    ours = {a.SEGMENT_ID: "other"}
    made = [
        replace(
            step,
            span_id=span_id(number, 1000 + index),
            attributes={**step.attributes, **ours, a.STEP_INDEX: 50 + index, a.STEP_REWARD: reward},
        )
        for index, reward in enumerate(rewards)
    ]
    if score is not None:
        scored = {a.REWARD_VALUE: score, a.SPEC_NAME: "other", a.SPEC_VERSION: "2"}
        attributes = {**scoring.attributes, **ours, **scored}
        made.append(replace(scoring, span_id=span_id(number, 700), attributes=attributes))
    identity = {key: step.attributes[key] for key in (a.RUN_ID, a.EPISODE_ID)} | ours
    end = {**identity, a.SEGMENT_SPAN_COUNT: len(made) + 1}
    return [*made, replace(step, name="segment", span_id=span_id(number, 701), attributes=end)]


def scattered(spans: Sequence[SpanRecord], random: Random, seed: int) -> list[Path]:
    """Files of these spans in any order, some repeated, and without some that end or mark an episode."""
    kept = list(spans)
    for _ in range(seed % 4):
        place = random.randrange(len(kept))
        if kept[place].name.split()[0] not in ("step", "agent"):
            del kept[place]
    if seed % 3:
        kept += random.choices(kept, k=6)
        random.shuffle(kept)
    files = 1 + seed % 3
    return [write(f"{at}.jsonl", kept[at::files], per_line=1 + seed % 7) for at in range(files)]

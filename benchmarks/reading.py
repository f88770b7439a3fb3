"""
What reading takes: a whole process from its start to the answer, imports included, from the page cache.

The file has 200 MB of OTLP JSON lines with arrays as OTLP has them, one episode of 126 KB a line: a root,
8 steps of a reward, 256 token ids and 256 float32 log probabilities. 200 episodes are different ones; their
trace ids change from copy to copy. `group-by` asks for the number of episodes and their mean return by
environment, `columns` for every attribute of every span, arrays included. DuckDB is given the schema, and
reads with all cores.

Another 200 MB are the chats of `chat.py` as mttp writes them: messages, texts, and arrays as packed bytes.
`chats` asks for everything as objects; `scan` goes through the spans without keeping them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case, Figures, Measure
from chat import POOL, STEPS, chats
from recorders import LOCAL, own

SECONDS, QUICK_SECONDS, ROUNDS = 200.0, 2.0, 5
"""Size of the file in MB."""
SAME = ("groups", "columns", "chats")
RECORDED = Path("../native.jsonl")
CHATS = Path("..") / f"{LOCAL}.jsonl"
EPISODES = 22
"""Number of chats in one MB."""
DISTINCT = 200
"""Number of different episodes."""


# The file.


def prepare(quick: bool) -> None:
    """Write the files."""
    megabytes = QUICK_SECONDS if quick else SECONDS
    recorder, pool = own(), chats(POOL, lists=False)
    for number in range(int(megabytes) * EPISODES):
        for _ in recorder.play(pool[number % POOL]):
            pass
    recorder.close()
    lines, size = _lines(), 1e6 * megabytes
    written = copies = 0
    with Path(RECORDED.name).open("wb") as file:
        while written < size:
            trace_id, line = lines[copies % len(lines)]
            other = hashlib.md5(f"{copies} {trace_id}".encode()).hexdigest()
            written += file.write(line.replace(trace_id.encode(), other.encode()))
            copies += 1


def _lines() -> list[tuple[str, bytes]]:
    """Return the trace id and the line of each different episode."""
    import numpy as np

    import mttp

    random = np.random.default_rng(0)
    with mttp.configure("memory://") as session:
        for number in range(DISTINCT):
            with mttp.episode(env=f"env-{number % 16}", policy_version=str(number // 16)) as episode:
                for _ in range(8):
                    with episode.step() as step:
                        step.reward(float(random.normal()))
                        logprobs = random.normal(-1, 1, 256).astype(np.float32)
                        step.tokens(ids=random.integers(0, 150_000, 256), logprobs=logprobs)
        traces: dict[str, list[Any]] = {}
        for record in session.records():
            if record.name == "step" or record.name.startswith("episode"):
                traces.setdefault(record.trace_id, []).append(_document(record))
    return [(trace_id, _line(spans)) for trace_id, spans in traces.items()]


def _line(spans: list[Any]) -> bytes:
    scoped = {"scope": {"name": "mttp"}, "spans": spans}
    document = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scoped]}]}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _document(record: Any) -> dict[str, Any]:
    """Return a span as OTLP JSON."""
    parent = {"parentSpanId": record.parent_id} if record.parent_id else {}
    return {
        "traceId": record.trace_id,
        "spanId": record.span_id,
        **parent,
        "flags": record.flags,
        "name": record.name,
        "kind": record.kind,
        "startTimeUnixNano": str(record.start_time),
        "endTimeUnixNano": str(record.end_time),
        "attributes": [{"key": key, "value": _written(value)} for key, value in record.attributes.items()],
        "status": {},
    }


def _written(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_written(each) for each in getattr(value, "tolist", lambda: value)()]}}


def _answered(name: str, answer: Callable[[], Any]) -> Measure:
    """Return a measure of a process that returns one result."""

    def measure(_: float) -> Figures:
        return {name: zlib.crc32(json.dumps(answer(), sort_keys=True).encode())}

    return measure


# Grouping.


def own_groups() -> Any:
    """Group by `mttp.summarize`."""
    import mttp

    found = mttp.summarize(RECORDED).envs.returns()
    return sorted([word, one.episodes, round(one.mean or 0.0, 9)] for word, one in found.items())


SCHEMA = (
    "STRUCT(scopeSpans STRUCT(spans STRUCT(name VARCHAR, "
    "attributes STRUCT(key VARCHAR, value STRUCT(stringValue VARCHAR, doubleValue DOUBLE))[])[])[])[]"
)


def duckdb_groups() -> Any:
    """Group by SQL in DuckDB."""
    import duckdb

    rows = duckdb.execute(
        f"""
        with blocks as (
            select unnest(resourceSpans) as block
            from read_json(
                '{RECORDED}', format = 'newline_delimited', columns = {{resourceSpans: '{SCHEMA}'}}
            )
        ),
        scopes as (select unnest(block.scopeSpans) as scope from blocks),
        spans as (select unnest(scope.spans) as span from scopes),
        episodes as (
            select
                list_filter(span.attributes, lambda a: a.key = 'mttp.env.id')[1].value as env,
                list_filter(span.attributes, lambda a: a.key = 'mttp.episode.return')[1].value as return_value
            from spans where span.name like 'episode %'
        )
        select env.stringValue, count(*), round(avg(return_value.doubleValue), 9) from episodes group by all
        """
    ).fetchall()
    return sorted(list(row) for row in rows)


# All columns.


def orjson_columns() -> Any:
    """Group by hand-written code: parse each line, and append each attribute to its column."""
    import orjson

    columns: dict[str, list[Any]] = {}
    with RECORDED.open("rb") as file:
        for line in file:
            for block in orjson.loads(line)["resourceSpans"]:
                for scoped in block["scopeSpans"]:
                    for span in scoped["spans"]:
                        for pair in span["attributes"]:
                            columns.setdefault(pair["key"], []).append(_parsed(pair["value"]))
    return _totals(
        columns["mttp.token.ids"],
        columns["mttp.token.logprobs"],
        columns["mttp.step.reward"],
        columns["mttp.env.id"],
        columns["mttp.episode.status"],
    )


def _parsed(value: dict[str, Any]) -> Any:
    for kind, found in value.items():
        if kind == "intValue":
            return int(found)
        if kind == "arrayValue":
            items = found["values"]
            if items and "intValue" in items[0]:
                return [int(item["intValue"]) for item in items]
            return [next(iter(item.values())) for item in items]
        return found
    return None


def own_columns() -> Any:
    """Read every episode as a value, with its steps and their numpy arrays."""
    import mttp

    episodes = mttp.read(RECORDED).episodes
    steps = [step for episode in episodes for step in episode.steps]
    blocks = [step.tokens for step in steps if step.tokens is not None]
    return _totals(
        [block.ids for block in blocks],
        [block.logprobs for block in blocks],
        [step.reward for step in steps],
        [episode.env for episode in episodes],
        [episode.status for episode in episodes],
    )


def _totals(ids: Any, logprobs: Any, rewards: Any, envs: Any, statuses: Any) -> Any:
    """Return a digest of the values that does not depend on their order."""
    return {
        "steps": len(rewards),
        "ids": sum(int(sum(one)) if type(one) is list else int(one.sum()) for one in ids),
        "logprobs": round(
            sum(sum(one) if type(one) is list else float(one.sum(dtype="float64")) for one in logprobs), 3
        ),
        "rewards": round(sum(rewards), 6),
        "envs": sorted(set(envs)),
        "episodes": len(statuses),
    }


# Chats.


def orjson_chats() -> Any:
    """Parse each line, and make an object of each attribute: messages, texts and arrays of numpy."""
    import orjson

    columns: dict[str, list[Any]] = {}
    with CHATS.open("rb") as file:
        for line in file:
            for block in orjson.loads(line)["resourceSpans"]:
                for scoped in block["scopeSpans"]:
                    for span in scoped["spans"]:
                        attributes = {pair["key"]: _object(pair["value"]) for pair in span["attributes"]}
                        attributes |= _arrays(attributes)
                        for key, value in attributes.items():
                            columns.setdefault(key, []).append(value)
    return _chats(
        columns["ids"],
        columns["logprobs"],
        columns["mttp.observation.value"],
        columns["mttp.action.value"],
        columns["mttp.episode.status"],
    )


def _object(value: dict[str, Any]) -> Any:
    for kind, given in value.items():
        if kind == "intValue":
            return int(given)
        if kind == "bytesValue":
            return base64.b64decode(given)
        if kind == "arrayValue":
            return [_object(item) for item in given["values"]]
        if kind == "kvlistValue":
            return {pair["key"]: _object(pair["value"]) for pair in given["values"]}
        return given
    return None


def _arrays(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a block of tokens."""
    import numpy as np

    arrays, start = {}, 0
    for name, dtype, length, _ in json.loads(attributes.get("mttp.token.layout", "[]")):
        arrays[name] = np.frombuffer(attributes["mttp.token.data"], dtype, length, start)
        start += arrays[name].nbytes
    return arrays


def own_chats() -> Any:
    """Read every episode as a value."""
    import mttp

    episodes = mttp.read(CHATS).episodes
    steps = [step for episode in episodes for step in episode.steps]
    blocks = [step.tokens for step in steps if step.tokens is not None]
    return _chats(
        [block.ids for block in blocks],
        [block.logprobs for block in blocks],
        [step.observation for step in steps],
        [step.action for step in steps],
        [episode.status for episode in episodes],
    )


def _chats(ids: Any, logprobs: Any, observations: Any, actions: Any, statuses: Any) -> Any:
    """Return a digest of the values that does not depend on their order."""
    return {
        "ids": sum(int(block.sum(dtype="int64")) for block in ids),
        "logprobs": round(sum(float(block.sum(dtype="float64")) for block in logprobs), 3),
        "observations": sum(len(message["content"]) for messages in observations for message in messages),
        "actions": sum(map(len, actions)),
        "episodes": len(statuses),
    }


def own_scan(_: float) -> Figures:
    """Go through all spans."""
    import mttp

    steps = sum(span.name == "step" for span in mttp.scan(CHATS, arrays=True))
    assert steps >= STEPS
    return {"steps": steps}


CASES = {
    "DuckDB, group-by": Case(_answered("groups", duckdb_groups)),
    "mttp, group-by": Case(_answered("groups", own_groups)),
    "orjson, columns": Case(_answered("columns", orjson_columns)),
    "mttp, columns": Case(_answered("columns", own_columns)),
    "orjson, chats": Case(_answered("chats", orjson_chats)),
    "mttp, chats": Case(_answered("chats", own_chats)),
    "mttp, scan": Case(own_scan),
}

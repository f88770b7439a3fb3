"""
What reading takes: a whole process from its start to the answer, imports included, from a file in the page
cache.

The file holds OTLP JSON lines with arrays as OTLP has them, one episode a line, some 126 KB: a root, 8
steps of a reward, 256 token ids and 256 float32 log probabilities. 200 episodes are different ones; their
trace ids change from copy to copy. 200 MB of it are read, in a quick run 20. `group-by` asks for the number
of episodes and their mean return by environment, `columns` for all that there is: every attribute of every
span, arrays included. DuckDB is given the schema, and reads with all cores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goals import Goal, times
from harness import main
from questions import Case, Measure, Question
from usage import own_peak_mb, peak_mb

MB = 1_000_000
FIGURES = {
    "process_ms": "ms of the whole process",
    "process_cpu_ms": "its CPU time",
    "peak_mb": "peak memory in MB",
}
NATIVE = Path("../native.jsonl")
SIZES = {"20 MB": 20, "500 MB": 500, "2 GB": 2000}


# The files.


def _lines() -> list[tuple[str, bytes]]:
    """200 episodes: the trace id and the line of each."""
    import numpy as np

    import mttp
    from mttp.wire.otlp_json import encode_records

    random = np.random.default_rng(0)
    with mttp.configure("memory://") as session:
        for number in range(200):
            with mttp.episode(env=f"env-{number % 16}", policy_version=number // 16) as episode:
                for _ in range(8):
                    with episode.step() as step:
                        step.reward(float(random.normal()))
                        logprobs = random.normal(-1, 1, 256).astype(np.float32)
                        step.tokens(ids=random.integers(0, 150_000, 256), logprobs=logprobs)
        traces: dict[str, list[Any]] = {}
        for record in session.records():
            if record.name == "step" or record.name.startswith("episode"):
                traces.setdefault(record.trace_id, []).append(record)
    return [(trace_id, b"".join(encode_records(records))) for trace_id, records in traces.items()]


def write(sizes: dict[Path, int]) -> None:
    """Write files of so many MB."""
    lines = _lines()
    for path, size in sizes.items():
        written = copies = 0
        with path.open("wb") as file:
            while written < size * MB:
                trace_id, line = lines[copies % len(lines)]
                other = hashlib.md5(f"{copies} {trace_id}".encode()).hexdigest()
                written += file.write(line.replace(trace_id.encode(), other.encode()))
                copies += 1


def _native(quick: bool) -> None:
    write({Path(NATIVE.name): 20 if quick else 200})


def _sized(quick: bool) -> None:
    write({Path(f"{size}.jsonl"): size for name, size in SIZES.items() if not (quick and _is_large(name))})


def _is_large(name: str) -> bool:
    return name == "2 GB"


def _answering(answer: Callable[[], Any]) -> Measure:
    """A measure of a process that gives one answer."""

    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        said = json.dumps(answer(), sort_keys=True).encode()
        return said, {"peak_mb": peak_mb()}

    return measure


# Grouping.


def own_groups() -> Any:
    """By the summary."""
    import mttp

    found = mttp.summarize(NATIVE).envs.returns()
    return sorted([word, paid.episodes, round(paid.mean or 0.0, 9)] for word, paid in found.items())


SCHEMA = (
    "STRUCT(scopeSpans STRUCT(spans STRUCT(name VARCHAR, "
    "attributes STRUCT(key VARCHAR, value STRUCT(stringValue VARCHAR, doubleValue DOUBLE))[])[])[])[]"
)


def duckdb_groups() -> Any:
    """By SQL."""
    import duckdb

    rows = duckdb.execute(
        f"""
        with blocks as (
            select unnest(resourceSpans) as block
            from read_json('{NATIVE}', format = 'newline_delimited', columns = {{resourceSpans: '{SCHEMA}'}})
        ),
        scopes as (select unnest(block.scopeSpans) as scope from blocks),
        spans as (select unnest(scope.spans) as span from scopes),
        episodes as (
            select
                list_filter(span.attributes, lambda a: a.key = 'mttp.env.id')[1].value as env,
                list_filter(span.attributes, lambda a: a.key = 'mttp.episode.return')[1].value as paid
            from spans where span.name like 'episode %'
        )
        select env.stringValue, count(*), round(avg(paid.doubleValue), 9) from episodes group by all
        """
    ).fetchall()
    return sorted(list(row) for row in rows)


# All columns.


def orjson_columns() -> Any:
    """What one would write oneself: each line parsed, each attribute appended to its column."""
    import orjson

    columns: dict[str, list[Any]] = {}
    with NATIVE.open("rb") as file:
        for line in file:
            for block in orjson.loads(line)["resourceSpans"]:
                for scoped in block["scopeSpans"]:
                    for span in scoped["spans"]:
                        for pair in span["attributes"]:
                            value = pair["value"]
                            columns.setdefault(pair["key"], []).append(_parsed(value))
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


def read_columns() -> Any:
    """Every episode as a value, with its steps and their numpy arrays."""
    import mttp

    episodes = mttp.read(NATIVE).episodes
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
    """What shows that everything was read, whatever its order; the start of an episode has no status."""
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


# The memory of a summary.


def _summary(path: Path) -> Measure:
    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        import mttp

        summary = mttp.summarize(path)
        said = json.dumps(summary.outcomes.counts()).encode()
        return said, {"peak_mb": peak_mb(), "own_mb": own_peak_mb(), "episodes": float(len(summary))}

    return measure


def _bytes_per_episode(figure: str, smaller: str) -> Callable[[Callable[[str, str], float]], float]:
    """How much more of that figure each episode takes that 2 GB have beyond the smaller file."""

    def value(get: Callable[[str, str], float]) -> float:
        grown = get("2 GB", figure) - get(smaller, figure)
        return grown * 2**20 / (get("2 GB", "episodes") - get(smaller, "episodes"))

    return value


QUESTIONS = {
    "group-by": Question(
        "mean return by environment from 200 MB",
        FIGURES,
        {"DuckDB read_json": Case(_answering(duckdb_groups)), "mttp": Case(_answering(own_groups))},
        [
            Goal(
                "5",
                "group-by over 200 MB of native JSON lines: DuckDB read_json over mttp",
                times("DuckDB read_json", "mttp", "process_ms"),
                6,
                11,
                at_least=True,
            )
        ],
        before=_native,
        twice="mttp",
    ),
    "columns": Question(
        "all columns from 200 MB",
        FIGURES,
        {
            "orjson": Case(_answering(orjson_columns)),
            "mttp": Case(_answering(read_columns)),
        },
        [
            Goal(
                "5",
                "all columns of 200 MB of native JSON lines: orjson over mttp",
                times("orjson", "mttp", "process_ms"),
                1.4,
                1.7,
                at_least=True,
            )
        ],
        before=_native,
        twice="mttp",
    ),
    "memory": Question(
        "the memory of a summary",
        {
            "peak_mb": "peak memory in MB",
            "own_mb": "that of the process that is asked",
            "episodes": "episodes",
            "process_ms": "ms of the whole process",
        },
        {
            name: Case(_summary(Path(f"../{size}.jsonl")), alike=False, thorough=_is_large(name))
            for name, size in SIZES.items()
        },
        [
            Goal(
                "9",
                "memory of the process that makes a summary, 20 MB to 2 GB: bytes per episode of 126 KB",
                _bytes_per_episode("own_mb", "20 MB"),
                400,
                unit="B",
            ),
            Goal(
                "9",
                "the same with the largest process that helps, from 500 MB on, where there are some",
                _bytes_per_episode("peak_mb", "500 MB"),
                400,
                unit="B",
            ),
            Goal(
                "9",
                "the same with the largest process that helps, from 20 MB on, where there is none",
                _bytes_per_episode("peak_mb", "20 MB"),
                unit="B",
            ),
        ],
        own="20 MB",
        before=_sized,
        once=True,
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)

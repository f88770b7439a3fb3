"""The layout of a partitioned dataset: its tables, their columns, and the names of its files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from mttp.codec import summary_fields
from mttp.errors import MissingExtra
from mttp.model.spans import SpanRecord
from mttp.reading.episode_figures import SummaryFigures
from mttp.reading.group_digest import VERSION
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.reading.assembly import EpisodePlace

__all__ = [
    "EMPTY_WRITE",
    "EPISODES",
    "REST",
    "SPANS",
    "Partition",
    "about",
    "episode_row",
    "file_name",
    "is_empty",
    "is_of_run",
    "open_facts",
    "lacking_digests",
    "partition_at",
    "partition_of",
    "partition_run",
    "schema_of",
    "version_of",
]

EPISODES: Final = "episodes"
"""One row per whole episode: columns to select by, and its digest."""
REST: Final = "rest"
"""One row per span that is not part of a whole episode, without its arrays."""
SPANS: Final = "spans"
"""One row per span, with all of its attributes."""

EMPTY_WRITE: Final = "empty"
"""The name of the write whose files have no rows, so that engines find all tables."""
_NO_RUN = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x20\"#%'*/:=?\\\[\]^{}\x7f]")
_DIGESTS = re.compile(r"-(\d+)digests-")
_LONGEST = 200
"""Bytes of a folder's name after `run=`; file systems allow 255 in all."""
_LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


def file_name(write: str, number: int, *, digests: int = 0) -> str:
    """
    The name of a file, from that of the write: all files of one write begin alike.

    The name of a file of digests has the number of such files that the write has for the run.
    """
    counted = f"-{digests}digests" if digests else ""
    return f"{write}-{number:05d}{counted}-v{VERSION.replace(' of ', '-')}.parquet"


def is_empty(path: str) -> bool:
    """Whether a file is the one without rows, which each table has."""
    return path.rpartition("/")[2].startswith(f"{EMPTY_WRITE}-")


def version_of(name: str) -> str:
    """The versions of digests and convention in the name of a file, by which its columns are known."""
    return name.rpartition("-v")[2]


def lacking_digests(paths: Iterable[str], unfinished: Collection[str]) -> list[str]:
    """
    Runs, as `partition_run` names them, of which a write that has ended lacks files of digests.

    `paths` are those of all files, `unfinished` the names of the writes that have not ended.
    """
    stated: dict[tuple[str, str], int] = {}
    found: Counter[tuple[str, str]] = Counter()
    for path in paths:
        name = path.rpartition("/")[2]
        key = name.partition("-")[0], partition_at(path).run
        if key[0] == EMPTY_WRITE or key[0] in unfinished:
            continue
        counted = _DIGESTS.search(name)
        stated[key] = max(stated.get(key, 1), int(counted[1]) if counted else 1)
        found[key] += path.split("/")[-4] != SPANS
    return sorted({run for (write, run), count in stated.items() if found[write, run] < count})


class Partition(NamedTuple):
    """A partition of a table."""

    run: str
    """The run as `partition_run` names it; empty without one."""
    date: str
    """The UTC date of the start, such as `2026-01-31`."""

    @property
    def path(self) -> str:
        """Its folder below the table's, as Hive and engines name it."""
        return f"run={_escaped(self.run) or _NO_RUN}/date={self.date}"


def partition_run(run: str) -> str:
    """The run in the names of its folders: its id, or a digest of an id that no folder can have as a name."""
    if run != _NO_RUN and len(_escaped(run).encode(errors="replace")) <= _LONGEST:
        return run
    return f"{run[:16]}-{sha256(run.encode(errors='replace')).hexdigest()}"


def _escaped(run: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", run)


def partition_at(path: str) -> Partition:
    """The partition of a file, from the names of its folders."""
    *_, run, date, _ = path.split("/")
    name = run.removeprefix("run=")
    return Partition("" if name == _NO_RUN else unquote(name), date.removeprefix("date="))


def partition_of(run: str, start_time: int) -> Partition:
    """The partition of a run's spans, for a start in nanoseconds since the Unix epoch."""
    seconds = min(max(start_time / 1e9, 0), _LAST)
    return Partition(partition_run(run), datetime.fromtimestamp(seconds, timezone.utc).date().isoformat())


def schema_of(table: str) -> Any:
    """The Arrow schema of `EPISODES` or `REST`."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="dataset", purpose="writing a dataset") from error

    texts, number, whole = pa.list_(pa.string()), pa.float64(), pa.int64()
    scores = pa.map_(pa.string(), number)
    selected = {
        "position": whole,
        "trace_id": pa.string(),
        "start_time": whole,
        "env": pa.string(),
        "task": pa.string(),
        "split": pa.string(),
        "slices": texts,
        "version": pa.string(),
        "digest": pa.binary(),
    }
    if table == REST:
        more = {"span_id": pa.string(), "is_episode": pa.bool_(), "is_of_run": pa.bool_(), "about": texts}
        return pa.schema(selected | more)
    words = ("seed", "group", "policy_version", "status", "outcome", "stop_reason", "reward_status")
    more = {name: pa.string() for name in (*words, "verdict", "spec_name", "spec_version", "grader")}
    more |= dict.fromkeys(("return", "reward", "duration", "cost"), number)
    more |= dict.fromkeys(("length", "prompt_tokens", "completion_tokens", "call_count"), whole)
    more |= {"components": scores, "metrics": scores, "metadata": pa.map_(pa.string(), pa.string())}
    return pa.schema(selected | more | {"figures": pa.binary()})


def episode_row(one: SummaryFigures) -> dict[str, Any]:
    """The columns of an episode by which it can be selected, and which people query."""
    return {
        "trace_id": one.trace_id,
        "start_time": one.start_time,
        "env": one.env,
        "task": one.task,
        "split": one.split,
        "slices": one.slices,
        "version": VERSION,
        "seed": one.seed,
        "group": one.group,
        "policy_version": one.policy_version,
        "status": one.status,
        "outcome": one.outcome,
        "stop_reason": one.stop_reason,
        "reward_status": one.reward_status,
        "verdict": one.verdict,
        "spec_name": one.spec[0] or None,
        "spec_version": one.spec[1] or None,
        "grader": one.grader[0] or None,
        "return": one.return_,
        "reward": one.reward,
        "duration": one.duration,
        "cost": one.cost,
        "length": one.length,
        "prompt_tokens": one.prompt_tokens,
        "completion_tokens": one.completion_tokens,
        "call_count": one.call_count,
        "components": [*one.components.items()],
        "metrics": [*one.metrics.items()],
        "metadata": [*one.metadata.items()],
    }


def open_facts(place: EpisodePlace) -> dict[str, Any]:
    """The columns to select by, of an episode of which spans are missing."""
    found = place.attributes
    return {
        "start_time": place.start_time,
        "env": place.text(a.ENV_ID),
        "task": found.get(a.TASK_ID),
        "split": found.get(a.TASK_SPLIT),
        "slices": found.get(a.TASK_SLICES),
    }


def about(record: SpanRecord) -> list[str]:
    """Trace ids of the episodes that a group or an annotation names."""
    kind = summary_fields.kind(record)
    if kind == names.GROUP:
        return [*summary_fields.members(record)[1]]
    if kind == names.ANNOTATE:
        found = record.attributes
        rejected = found.get(a.ANNOTATION_REJECTED_TRACE_IDS) or ()
        return [str(found.get(a.ANNOTATION_TARGET_TRACE_ID, "")), *map(str, rejected)]
    return []


def is_of_run(record: SpanRecord) -> bool:
    """Whether a span is about the run as a whole, such as an update."""
    kind = summary_fields.kind(record)
    is_apart = a.EPISODE_ID not in record.attributes and kind not in (
        names.GROUP,
        names.ANNOTATE,
        names.GRADE,
    )
    return is_apart and (bool(kind) or a.RUN_ID in record.attributes)

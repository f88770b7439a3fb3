"""TRL: the completions that its trainers save as Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mttp.errors import ReadError
from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, saved_texts, scored
from mttp.formats.fields import as_mapping, number, text, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.saved import keeping, saved_record
from mttp.model.episodes import Episode, Reward
from mttp.otlp.recording_files import is_parquet

__all__ = [
    "LACKS",
    "SUFFIX",
    "TITLE",
    "RewardColumns",
    "episode",
    "read",
    "recognizes",
    "record",
    "reward_columns",
]

TITLE = "TRL completions"
SUFFIX = ".parquet"
LACKS = (
    "tokens and log probabilities",
    "which columns are reward functions and which `log_extra` wrote, if the trainer's log is not beside it",
    "weights of reward functions (the reward is the sum of their columns)",
    "seeds, versions of the policy, times",
)
_OWN = ("step", "prompt", "completion", "advantage")
_LOGGED = re.compile(r'"[^"]*\brewards/((?:[^"\\]|\\.)+)/mean"')
"""A metric that TRL logs for each reward function."""


@dataclass(frozen=True, slots=True)
class RewardColumns:
    """The columns of reward functions, which TRL writes before those of `log_extra`."""

    rewards: tuple[str, ...]
    """The reward functions."""
    unclear: tuple[str, ...] = ()
    """Columns that may be reward functions or not."""


def recognizes(sample: FileSample) -> bool:
    """Return whether a Parquet file has the columns that every trainer of TRL writes."""
    return {*_OWN} <= {*sample.columns}


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each row."""
    output = path.parent.parent
    logs = [output / "trainer_state.json", *sorted(output.glob("checkpoint-*/trainer_state.json"))]
    columns = reward_columns(_typical_row(path), logs) if is_parquet(path) else None
    yield from json_records.episodes(json_records.placed(path), partial(episode, columns=columns))


def _typical_row(path: Path) -> dict[str, Any]:
    """Return a row with a value of each column's type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise ReadError(f"{path}: {error}") from error
    kinds = ((pa.types.is_floating, 0.0), (pa.types.is_integer, 0), (pa.types.is_null, None))
    return {
        field.name: next((value for is_kind, value in kinds if is_kind(field.type)), "") for field in schema
    }


def reward_columns(row: Mapping[str, Any], logs: Iterable[Path] = ()) -> RewardColumns:
    """
    Return the columns of reward functions of a table with this row.

    Their values are floats or None, and the first column is always one. Where several columns could be, the
    metrics in the trainer's logs name the reward functions.
    """
    columns: list[str] = []
    for name, value in row.items():
        if name == "advantage" or (name not in _OWN and not _is_reward(value, row, columns)):
            break
        columns += [name] if name not in _OWN else []
    if len(columns) < 2:
        return RewardColumns(tuple(columns))
    logged = next(filter(None, map(_logged_functions, logs)), frozenset())
    named = tuple(name for name in columns if name in logged)
    return RewardColumns(named) if named else RewardColumns((columns[0],), tuple(columns[1:]))


def _is_reward(value: object, row: Mapping[str, Any], before: Sequence[str]) -> bool:
    """Return whether a column may be a reward function; where the first has whole numbers, types say less."""
    is_typed = not before or isinstance(row[before[0]], float)
    return value is None or isinstance(value, float) or (_is_number(value) and not (before and is_typed))


def _logged_functions(log: Path) -> frozenset[str]:
    """Return the names of the reward functions in a log of the trainer; none if it can't be read."""
    try:
        return frozenset(json.loads(f'"{name}"') for name in _LOGGED.findall(log.read_text("utf-8")))
    except (OSError, ValueError):
        return frozenset()


def episode(record: Mapping[str, Any], columns: RewardColumns | None = None) -> Episode:
    """
    Return the episode of a row.

    Other numbers than rewards are metrics, other values are metadata. Without knowing all columns of rewards
    there is no total, and an infinite reward makes it an error.
    """
    columns = columns or reward_columns(record)
    others = {name: value for name, value in record.items() if name not in _OWN and name != "_place"}
    components = {name: others.pop(name, None) for name in columns.rewards}
    metrics = {name: figure for name, value in others.items() if (figure := number(value)) is not None}
    step = whole(record.get("step"))
    value = completion_episode(
        "trl",
        [record.get("_place"), record["prompt"], record["completion"], step],
        prompt=record["prompt"],
        completion=record["completion"],
        reward=_reward(components, columns.unclear),
        rest={name: value for name, value in others.items() if name not in metrics},
        metrics=metrics,
        task=_task(record["prompt"]),
        group=group_id(step, record["prompt"]),
        policy_update_index=step,
        policy_version_start=text(step),
        advantage=number(record.get("advantage")),
    )
    return keeping("trl", record, value, _derived, ("prompt", "completion"))


def _reward(components: Mapping[str, object], unclear: Sequence[str]) -> Reward:
    """Return the sum of the components as TRL computes it: of those that are not NaN."""
    if unclear:
        names = ", ".join(unclear)
        reason = f"no total: the file does not tell whether these columns are rewards: {names}"
        return scored(None, components, explanation=reason)
    numbers = [value for value in components.values() if isinstance(value, (int, float)) and value == value]
    return scored(sum(numbers) if numbers else None, components)


def record(episode: Episode) -> dict[str, Any]:
    """Return the row of an imported episode as it was saved; raises ValueError for another episode."""
    return saved_record("trl", episode, _derived)


def _derived(episode: Episode) -> dict[str, Any]:
    asked, answered = saved_texts("trl", episode)
    return {
        "step": episode.policy_update_index,
        "prompt": asked,
        "completion": answered,
        **as_mapping(episode.metadata.get("trl")),
        "advantage": episode.advantage,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _task(prompt: object) -> str:
    """Return the text of the prompt, by which its samples are compared."""
    last: object = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return str(as_mapping(last).get("content") or last)[:500]

"""Rewards of other libraries that are infinite or not a number, in each format that is read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from completion_rows import CHAT, NEMO, OPENRLHF, SKYRL, TRL, VERL

import mttp
from mttp import formats
from mttp.formats.zip_files import json_member

FILES = Path(__file__).parent / "files"
INSPECT = FILES / "inspect.eval"
WORDS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""Numbers of OTLP JSON that JSON does not have."""


def lines(*rows: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def parquet(*rows: dict[str, object]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def table(columns: str, *rows: list[object]) -> bytes:
    return lines({"columns": columns.split(), "data": rows})


def verifiers(*scores: float) -> bytes:
    rows = []
    for score in scores:
        row = json.loads((FILES / "verifiers.jsonl").read_text().splitlines()[0])
        row["id"] = f"{len(rows):032x}"
        for trace in row["traces"]:
            trace["rewards"] = {
                "first": {"score": 0.25, "weight": 1.0},
                "second": {"score": score, "weight": 1.0},
            }
        rows.append(row)
    return lines(*rows)


def hud(*scores: float) -> bytes:
    spans = []
    for run, score in zip(("a" * 32, "b" * 32), scores, strict=True):
        for line in (FILES / "hud.jsonl").read_text().splitlines():
            span = json.loads(line)
            span["attributes"]["hud.task_run_id"] = run
            result = span["attributes"].get("hud.payload", {}).get("task_call") or {}
            if result.get("phase") == "evaluate":
                result["result"]["score"] = score
            spans.append(span)
    return lines(*spans)


def inspect(*values: float) -> bytes:
    header, sample = json_member(INSPECT, "header.json"), json_member(INSPECT, "samples/1_epoch_1.json")
    samples = []
    for number, value in enumerate(values):
        scores = {name: {**score, "value": value} for name, score in sample["scores"].items()}
        samples.append({**sample, "id": number, "uuid": f"s{number}", "scores": scores})
    return lines({**header, "samples": samples})


def art(*rewards: float) -> bytes:
    answer = {"finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}
    trajectory = {"messages_and_choices": [*CHAT, answer], "metrics": {}}
    return lines({"trajectories": [{**trajectory, "reward": reward} for reward in rewards]})


def art_rows(*rewards: float) -> bytes:
    messages = [*CHAT, {"role": "assistant", "content": "4"}]
    row = {"group_index": 0, "metrics": "{}", "messages": messages}
    return parquet(*({**row, "reward": reward} for reward in rewards))


def proposed(*rewards: float) -> bytes:
    spans = []
    for number, reward in enumerate(rewards):
        shared = {"traceId": f"{number + 1:032x}", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
        chat = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
        score = {"key": "rl.reward.score", "value": {"doubleValue": WORDS.get(str(reward), reward)}}
        spans.append({**shared, "spanId": f"{number + 1:016x}", "name": "chat", "attributes": [chat]})
        spans.append({**shared, "spanId": f"{number + 11:016x}", "name": "rl.reward", "attributes": [score]})
    return lines({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]})


def columns(name: str, row: dict[str, Any]) -> Callable[..., bytes]:
    """Return what writes rows that differ in one field."""
    write = parquet if row is TRL else lines
    return lambda *values: write(*({**row, name: value} for value in values))


WRITTEN: Mapping[str, Callable[..., bytes]] = {
    "trl": columns("correct", TRL),
    "verl": columns("score", VERL),
    "skyrl": columns("score", SKYRL),
    "skyrl, per token": lambda *scores: columns("score", SKYRL)(*([0.5, score] for score in scores)),
    "openrlhf": columns("reward", OPENRLHF),
    "nemo_rl": lambda *rewards: columns("rewards", NEMO)(*([reward] for reward in rewards)),
    "art": art,
    "art, rows": art_rows,
    "verifiers": verifiers,
    "hud": hud,
    "inspect": inspect,
    "wandb, trl": lambda *scores: table(
        "step prompt completion correct advantage", *([1, "2+2?", "4", score, 0.7] for score in scores)
    ),
    "wandb, verl": lambda first, second: table(
        "step input_1 output_1 score_1 input_2 output_2 score_2",
        [10, "2+2?", "4", first, "3+3?", "7", second],
    ),
    "agent_traces": proposed,
}
"""Files of two episodes with these rewards, by format."""


def test_each_format_has_a_file() -> None:
    """
    A new one can't be forgotten.
    """
    assert formats.FORMATS.keys() == {name.partition(",")[0] for name in WRITTEN}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", WRITTEN)
def test_an_infinite_reward_is_an_error(name: str, value: float, tmp_path: Path) -> None:
    """
    It is no number, and not left out of a sum; the other episode of the file is read, and both are recorded.
    """
    path = tmp_path / "file"
    path.write_bytes(WRITTEN[name](value, 1.0))
    with mttp.configure("memory://") as session:
        for record in formats.read(path):
            if isinstance(record, mttp.Episode):
                session.record(record)
    odd, other = sorted(mttp.read(session), key=lambda episode: episode.return_ is not None)
    is_unscored = name == "inspect" and value != value  # NaN is its value of what was not scored

    assert name.partition(",")[0] == formats.recognize(path)
    assert ("missing" if is_unscored else "error", None, None) == (
        odd.reward.status,
        odd.reward.value,
        odd.return_,
    )
    assert other.return_ is not None
    assert other.return_ >= 1.0

"""Formats with one row for each completion: TRL, verl, SkyRL, OpenRLHF and NeMo-RL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from completion_rows import NEMO, OPENRLHF, SKYRL, TRL, VERL

import mttp
from mttp import formats
from mttp.formats.records import UnreadableRecord

ROWS = {"trl": TRL, "verl": VERL, "skyrl": SKYRL, "openrlhf": OPENRLHF, "nemo_rl": NEMO}


def written(tmp_path: Path, name: str, *rows: Any) -> Path:
    """A file with these rows, as the library writes it."""
    if name == "trl":
        path = tmp_path / "completions_00003.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path = tmp_path / "train_data_step3.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def episode(tmp_path: Path, name: str, **changes: Any) -> mttp.Episode:
    """The episode of the format's row with these changes."""
    (found,) = formats.read(written(tmp_path, name, {**ROWS[name], **changes}))
    assert isinstance(found, mttp.Episode), found

    return found


@pytest.mark.parametrize("name", ROWS)
def test_the_content_decides_the_format(name: str, tmp_path: Path) -> None:
    """
    Each has fields of its own.
    """
    assert name == formats.recognize(written(tmp_path, name, ROWS[name]))


@pytest.mark.parametrize("name", ROWS)
def test_prompt_answer_reward_and_group(name: str, tmp_path: Path) -> None:
    """
    Samples of one prompt at one step have one group, and each row has a trace id of its own.
    """
    row = ROWS[name]
    first, second = formats.read(written(tmp_path, name, row, row))

    assert isinstance(first, mttp.Episode)
    assert isinstance(second, mttp.Episode)

    (step,) = first.steps

    assert "2+2?" in step.observation[0]["content"]
    assert "4" == step.action["content"]
    assert first.trace_id != second.trace_id
    assert first.group == second.group
    assert {"openrlhf": 0.5}.get(name, 1.0) == first.return_


@pytest.mark.parametrize("name", ROWS)
def test_an_imported_row_reads_back(name: str, tmp_path: Path) -> None:
    """
    What is recorded is what was read, without a fault.
    """
    path = written(tmp_path, name, ROWS[name])
    (value,) = formats.read(path)
    assert isinstance(value, mttp.Episode)

    with mttp.configure("memory://", provenance=False) as session:
        session.record(value)
    (found,) = mttp.read(session)

    assert {} == session.stats.faults
    assert (value.steps, value.reward, value.metadata, value.task, value.trace_id) == (
        found.steps,
        found.reward,
        found.metadata,
        found.task,
        found.trace_id,
    )


def test_columns_of_trl(tmp_path: Path) -> None:
    """
    The first column is a reward function; other numbers are metrics and other values metadata.
    """
    found = episode(tmp_path, "trl", done=True)

    assert ({"correct": 1.0}, 1.0, "ok") == (found.reward.components, found.return_, found.reward.status)
    assert {"tests": 3.0, "done": 1.0} == found.metrics
    assert {"answer": "4"} == found.metadata["trl"]
    assert (3, 0.7) == (found.policy_update_index, found.advantage)


def trl_row(**columns: Any) -> dict[str, Any]:
    """Return a row of TRL with these columns before the advantage."""
    own = {name: TRL[name] for name in ("step", "prompt", "completion")}
    return {**own, **columns, "advantage": 0.7}


def trl_episodes(tmp_path: Path, *rows: Any, log: Any = None) -> list[mttp.Episode]:
    """Return the episodes of a file in a trainer's output, perhaps with the trainer's log."""
    folder = tmp_path / "completions"
    folder.mkdir()
    if log is not None:
        (tmp_path / "checkpoint-3").mkdir()
        (tmp_path / "checkpoint-3" / "trainer_state.json").write_text(json.dumps(log))
    found = [*formats.read(written(folder, "trl", *rows))]
    return [one for one in found if isinstance(one, mttp.Episode)]


def test_columns_that_may_be_rewards_of_trl_or_not_have_no_total(tmp_path: Path) -> None:
    """
    Both reward functions and `log_extra` write floats; the reason names the columns, which are metrics.
    """
    rows = [trl_row(correct=1.0, length=120.0, note="a"), trl_row(correct=0.0, length=None, note=None)]
    first, second = trl_episodes(tmp_path, *rows)

    assert [(None, "missing")] * 2 == [(one.return_, one.reward.status) for one in (first, second)]
    assert "length" in str(first.reward.explanation)
    assert ({"correct": 1.0}, {"length": 120.0}) == (first.reward.components, first.metrics)


def test_the_log_of_trl_names_its_reward_functions(tmp_path: Path) -> None:
    """
    Of the columns, the metrics of the trainer tell which ones are rewards.
    """
    names = ("correct", 'sh"ort', "é")
    log = {"log_history": [{f"rewards/{name}/mean": 0.5 for name in names}]}
    row = trl_row(**{"correct": 1.0, 'sh"ort': 0.5, "é": 0.25, "length": 120.0})
    (found,) = trl_episodes(tmp_path, row, log=log)

    assert (1.75, "ok", {"length": 120.0}) == (found.return_, found.reward.status, found.metrics)
    assert {*names} == found.reward.components.keys()


def test_a_reward_function_of_trl_that_gave_none_is_missing(tmp_path: Path) -> None:
    """
    The sum of the others is a partial reward; without any there is none.
    """
    log = {"rewards/correct/mean": 0.5, "rewards/short/mean": 0.5}
    rows = [trl_row(correct=1.0, short=None), trl_row(correct=None, short=None)]
    some, none = trl_episodes(tmp_path, *rows, trl_row(correct=1.0, short=0.5), log=log)[:2]

    assert ("partial", 1.0, {"short": "missing"}) == (
        some.reward.status,
        some.return_,
        some.reward.component_statuses,
    )
    assert ("missing", None) == (none.reward.status, none.return_)


def test_fields_of_verl(tmp_path: Path) -> None:
    """
    Numbers of the reward function are metrics; the ground truth is an input.
    """
    found = episode(tmp_path, "verl")

    assert {"acc": 1.0} == found.metrics
    assert {"pred": "4"} == found.metadata["verl"]
    assert {"ground_truth": "4"} == found.inputs


def test_scores_of_skyrl(tmp_path: Path) -> None:
    """
    One for each token, or one for all.
    """
    each, whole = episode(tmp_path, "skyrl"), episode(tmp_path, "skyrl", score=0.25)

    assert [0.0, 0.0, 1.0] == list(each.steps[0].tokens.rewards)
    assert (1.0, True, "length", "gsm8k") == (each.return_, each.truncated, each.stop_reason, each.env)
    assert (0.25, None) == (whole.return_, whole.steps[0].tokens)


def test_tokens_of_nemo_rl(tmp_path: Path) -> None:
    """
    Without padding; the prompt ends at the first token in the loss.
    """
    found = episode(tmp_path, "nemo_rl")
    tokens = found.steps[0].tokens

    assert ([11, 12], [13, 14, 15]) == (list(tokens.prompt_ids), list(tokens.ids))
    assert ([-0.1, -0.2, -0.3], [-0.2, -0.2, -0.2]) == (list(tokens.logprobs), list(tokens.trainer_logprobs))
    assert (0.5, 3) == (found.advantage, found.policy_update_index)
    assert {"agent_ref": {"name": "simple"}} == found.metadata["nemo_rl"]


@pytest.mark.parametrize(("name", "field"), [("verl", "score"), ("skyrl", "score"), ("openrlhf", "reward")])
@pytest.mark.parametrize("value", ["NaN", "Infinity", '"broken"'])
def test_a_reward_that_is_no_number_is_an_error(name: str, field: str, value: str, tmp_path: Path) -> None:
    """
    It is never zero.
    """
    path = written(tmp_path, name, {**ROWS[name], field: "PLACE"})
    path.write_text(path.read_text().replace('"PLACE"', value))
    (found,) = formats.read(path)
    assert isinstance(found, mttp.Episode)

    assert ("error", None) == (found.reward.status, found.return_)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "trl"])
def test_wrong_rows_are_named(name: str, tmp_path: Path) -> None:
    """
    A row without a field, one that is no object, and one that is no JSON; the others are read.
    """
    path = written(tmp_path, name, ROWS[name], {}, 3, ROWS[name])
    path.write_text(path.read_text() + "{\n")
    found = list(formats.read(path))

    assert ["line 2", "line 3", "line 5"] == [one.place for one in found if isinstance(one, UnreadableRecord)]
    assert 2 == sum(isinstance(one, mttp.Episode) for one in found)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "trl"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], {"a": None}, 2**70])
def test_any_type_of_a_field(name: str, value: object, tmp_path: Path) -> None:
    """
    The row is an episode or is named; reading goes on.
    """
    rows = [{**ROWS[name], field: value} for field in ROWS[name]]
    found = list(formats.read(written(tmp_path, name, ROWS[name], *rows)))

    assert 1 + len(rows) == len(found)

"""verifiers' own files: `files/verifiers.jsonl` was written by verifiers 0.4."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mttp
from mttp import formats
from mttp.formats import verifiers
from mttp.formats.records import UnreadableRecord

FILE = Path(__file__).parent / "files" / "verifiers.jsonl"
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]


def recorded(tmp_path: Path) -> dict[str, mttp.Episode]:
    """The episodes of the file, recorded and read back, by id."""
    target = tmp_path / "recorded.jsonl"
    with mttp.configure(f"file://{target}") as session:
        for episode in formats.read(FILE):
            assert isinstance(episode, mttp.Episode)

            session.record(episode)

    assert {} == session.stats.faults
    assert [] == mttp.read(target).problems
    return {episode.id: episode for episode in mttp.read(target)}


def test_the_content_decides_the_format() -> None:
    """
    The name of the file does not matter.
    """
    assert "verifiers" == formats.recognize(FILE)


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_a_recorded_episode_gives_the_library_s_record_back(number: int, tmp_path: Path) -> None:
    """
    Nothing of the record is lost: neither branches, nor tokens, nor what mttp has no name for.
    """
    record = RECORDS[number]

    assert record == json.loads(json.dumps(verifiers.record(recorded(tmp_path)[record["id"]])))


def test_each_sampled_message_is_a_step() -> None:
    """
    Its observation are the messages since the sampled message before it, its tokens those of its node.
    """
    record = RECORDS[0]
    episode = verifiers.episode(record)
    nodes = record["traces"][0]["nodes"]
    first, second, branch = episode.steps

    assert [nodes[0]["message"], nodes[1]["message"]] == first.observation
    assert nodes[2]["message"] == first.action
    assert [nodes[3]["message"]] == second.observation
    assert first.observation == branch.observation
    assert nodes[2]["token_ids"][1:] == list(first.tokens.ids)
    assert [*nodes[3]["token_ids"], *nodes[4]["token_ids"][:1]] == list(second.tokens.prompt_ids)
    np.testing.assert_array_equal(nodes[4]["logprobs"], second.tokens.logprobs)
    np.testing.assert_array_equal(nodes[4]["entropies"], second.tokens.entropies)
    assert (0, 12) == second.tokens.parent


def test_rewards_have_scores_weights_and_what_was_not_computed() -> None:
    """
    A score that is None is missing and not zero; the sum of the others is a partial reward.
    """
    reward = verifiers.episode(RECORDS[0]).reward

    assert "partial" == reward.status
    assert 0.9 == pytest.approx(reward.value)
    assert {"correct": 1.0, "format": 0.5} == reward.components
    assert {"late": "missing"} == reward.component_statuses
    assert {"correct": 0.8, "format": 0.2} == reward.weights
    assert "yes" == reward.evidence["judge_calls"][0]["response"]["message"]["content"]
    assert ["judge"] == [call.name for call in reward.calls]


def test_a_failed_episode_has_no_number() -> None:
    """
    Its error, the failed call and the boundary that it came from are recorded.
    """
    episode = verifiers.episode(RECORDS[4])

    assert ("error", None, "TaskError", "task_error") == (
        episode.status,
        episode.return_,
        episode.error_type,
        episode.stop_reason,
    )
    assert ("error", None, {"correct": "error"}) == (
        episode.reward.status,
        episode.reward.value,
        episode.reward.component_statuses,
    )
    assert ["ProviderError"] == [call.error_type for step in episode.steps for call in step.calls]


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(("rewarded", "status"), [(True, "completed"), (False, "aborted")])
def test_a_truncated_episode_that_was_rewarded_is_completed(number: int, rewarded: bool, status: str) -> None:
    """
    It was trained on; without a reward it was cut off. An episode and a lone trace are alike.
    """
    record = copy.deepcopy(RECORDS[number]) | {"ok": False}
    for trace in record.get("traces", [record]):
        trace |= {"is_completed": False, "stop_condition": "max_turns"}
        trace |= {} if rewarded else {"rewards": {}}

    episode = verifiers.episode(record)

    assert (status, True, "max_turns") == (episode.status, episode.truncated, episode.stop_reason)
    assert rewarded is (episode.return_ is not None)


def test_several_traces_are_agents() -> None:
    """
    The reward of the episode is that of the only trainable agent; with two there is none.
    """
    one, several = verifiers.episode(RECORDS[1]), verifiers.episode(RECORDS[3])

    assert ["solver", "judge"] == [agent.id for agent in one.agents]
    assert 0.9 == pytest.approx(one.return_)
    assert ["agent", "agent-2"] == [agent.id for agent in several.agents]
    assert several.return_ is None
    assert [0.9, 0.9] == pytest.approx([agent.return_ for agent in several.agents])


def test_the_group_the_policy_and_the_times_are_those_of_the_record() -> None:
    """
    The policy's versions are those between which it was sampled.
    """
    episode = verifiers.episode(RECORDS[0])

    assert ("g1", "tiny", "2", "3", "train") == (
        episode.group,
        episode.policy,
        episode.policy_version_start,
        episode.policy_version_end,
        episode.split,
    )
    assert 1_700_000_000_000_000_000 == episode.start_time
    assert {"type": "T", "key": "k1", "hash": "h"} == episode.metadata["verifiers"]["task"]
    assert "4" == episode.inputs["answer"]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"task": {}},
        {"task": None, "nodes": []},
        {"task": {}, "nodes": [{"parent": 0, "sampled": True}]},
        {"task": {}, "nodes": [{"parent": 7, "sampled": True}]},
        {"task": {}, "nodes": [{"sampled": True, "token_ids": [2**70], "mask": [True]}]},
        {"task": {}, "nodes": [{"sampled": True, "token_ids": ["x"], "mask": [True]}]},
    ],
)
def test_a_wrong_record_is_named_and_the_others_are_read(record: dict[str, Any], tmp_path: Path) -> None:
    """
    Its place and the reason are stated.
    """
    path = tmp_path / "traces.jsonl"
    path.write_text(f"{json.dumps(RECORDS[0])}\n{json.dumps(record)}\nno json\n{json.dumps(RECORDS[2])}\n")
    found = list(formats.read(path))

    assert [RECORDS[0]["id"], "line 2", "line 3", RECORDS[2]["id"]] == [
        one.place if isinstance(one, UnreadableRecord) else one.id for one in found
    ]


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, float("nan"), [None], {"a": None}, [[1]]])
@pytest.mark.parametrize("name", sorted(RECORDS[0]["traces"][0].keys() - {"nodes"}))
def test_a_field_of_another_type_is_left_out(name: str, value: object) -> None:
    """
    Other libraries change their fields: the episode keeps its messages.
    """
    trace = {**RECORDS[0]["traces"][0], name: value}
    episode = verifiers.episode({**RECORDS[0], "traces": [trace]})

    assert 3 == episode.step_count

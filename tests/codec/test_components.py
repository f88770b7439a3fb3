"""A component's name is the same wherever it is said."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import mttp
from mttp.rewards.spec import RewardSpec


def graded() -> mttp.RewardSpec:
    """A spec whose component's name is no key."""
    part = {"name": "no-F", "kind": "rubric", "use": lambda text: 0.5, "range": [0, 1], "version": "1"}
    return RewardSpec(name="named", version="1.0.0", components=[part], combine="weighted_sum")


@pytest.mark.parametrize("transport", ["memory://", "file://a.jsonl", "mttp+file://a.mttp.jsonl"])
def test_a_name_is_the_same_from_the_spec_to_the_column(transport):
    """
    The attribute's key is normalized; reading, tables and summaries have the spec's own name.
    """
    result = graded().score(text="x")
    with mttp.configure(transport=transport) as session, mttp.episode() as episode:
        episode.reward(result)
    source = session if transport == "memory://" else transport.rpartition("file://")[2]

    recording = mttp.read(source)

    (read,) = recording.episodes
    assert {"no-F"} == set(result.components)
    assert {"no-F": 0.5} == read.reward.components
    assert {"no-F": 1.0} == read.reward.weights
    assert ["no-F"] == [grade.name for grade in read.reward.grades]
    assert [{"no-F": 0.5}] == [row["components"] for row in recording.tables.scorings.rows()]
    assert ["no-F"] == [row["component"] for row in recording.tables.components.rows()]
    assert ["", "no-F"] == [one.component for one in mttp.summarize(source).graders]


def test_a_name_given_by_hand_is_kept():
    """
    Scores, statuses and weights come back under the name that was given, in any writing.
    """
    with mttp.configure(transport="memory://") as session, mttp.episode() as episode:
        episode.reward(1.0, components={"no-f": 1, "Größe": None}, weights={"no-f": 1, "Größe": 1})

    (read,) = mttp.read(session).episodes

    assert {"no-f": 1.0} == read.reward.components
    assert {"Größe": "missing"} == read.reward.component_statuses
    assert {"no-f": 1.0, "Größe": 1.0} == read.reward.weights
    assert {} == dict(session.stats.faults)


def test_names_with_one_key_are_a_fault():
    """
    Of two names that are recorded under one key the first stays, also where one of them is a weight's.
    """
    with mttp.configure(transport="memory://") as session, mttp.episode() as episode:
        episode.reward(1.0, components={"no-f": 1.0, "no_f": 2.0}, weights={"No-F": 1.0, "no-f": 1.0})

    (read,) = mttp.read(session).episodes

    assert {"no-f": 1.0} == read.reward.components
    assert {"no-f": 1.0} == read.reward.weights
    assert {"name_collision": 2} == dict(session.stats.faults)


def test_metrics_have_the_name():
    """
    The score of a component is a metric under the component's own name.
    """
    reader = InMemoryMetricReader()
    with (
        mttp.configure(transport="memory://", meter_provider=MeterProvider([reader])),
        mttp.episode() as episode,
    ):
        episode.reward(1.0, components={"no-f": 1.0})

    points = [
        point
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "mttp.rewards.score"
        for point in metric.data.data_points
    ]
    assert ["no-f"] == [point.attributes["mttp.component.name"] for point in points]

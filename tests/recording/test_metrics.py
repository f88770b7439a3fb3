"""Metrics of episodes, steps, rewards and updates."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import mttp
from mttp.integrations.faults import guard
from mttp.semconv import attributes as a
from mttp.semconv import metrics, registry


@pytest.fixture
def reader() -> InMemoryMetricReader:
    """A metric reader in memory."""
    return InMemoryMetricReader()


def configured(reader: InMemoryMetricReader, **options: Any) -> mttp.Session:
    """A session with metrics."""
    return mttp.configure("memory://", meter_provider=MeterProvider([reader]), **options)


def points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, Any], Any]]:
    """Return a metric's points: their attributes, and sum, count or value."""
    data = reader.get_metrics_data()
    found = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]
    return [
        (dict(point.attributes), (point.count, point.sum) if hasattr(point, "count") else point.value)
        for point in found
    ]


def test_an_episode_s_metrics_are_recorded_at_its_end(reader: InMemoryMetricReader) -> None:
    """
    Its return, length and duration have the dimensions environment, status, outcome and spec.
    """
    with configured(reader, kind="eval"), mttp.episode(env="toy") as episode:
        for _ in range(3):
            with episode.step() as step:
                step.tokens(ids=[1, 2])
        spec = mttp.model.Spec(name="math", version="1.2.0")
        episode.reward(0.75, components={"correct": 1.0, "format": 0.5}, spec=spec, grader="judge")
        episode.end(outcome="success", terminated=True)

    dimensions = {
        a.ENV_ID: "toy",
        a.EPISODE_STATUS: "completed",
        a.EPISODE_OUTCOME: "success",
        a.RUN_KIND: "eval",
    }
    of_spec = {a.SPEC_NAME: "math", a.SPEC_VERSION: "1.2.0"}
    kind = {a.RUN_KIND: "eval"}
    assert [(dimensions | of_spec, (1, 0.75))] == points(reader, metrics.EPISODES_RETURN)
    assert [(dimensions, (1, 3))] == points(reader, metrics.EPISODES_LENGTH)
    assert [(dimensions, 1)] == points(reader, metrics.EPISODES_FINISHED)
    assert [(dimensions, 1)] == [
        (key, count) for key, (count, _) in points(reader, metrics.EPISODES_DURATION)
    ]
    assert [(kind, 3)] == [(key, count) for key, (count, _) in points(reader, metrics.STEPS_DURATION)]
    assert [(kind, 6)] == points(reader, metrics.TOKENS_GENERATED)
    assert [({**of_spec, a.GRADER_NAME: "judge", **kind}, (1, 0.75))] == points(reader, metrics.REWARDS_VALUE)
    scores = {key[a.COMPONENT_NAME]: value for key, value in points(reader, metrics.REWARDS_SCORE)}
    assert {"correct": (1, 1.0), "format": (1, 0.5)} == scores
    assert [] == points(reader, metrics.REWARDS_INVALID)


def test_an_invalid_reward_is_counted_and_never_measured(reader: InMemoryMetricReader) -> None:
    """
    One NaN would make every mean NaN.
    """
    with configured(reader), mttp.episode() as episode:
        with episode.step() as step:
            step.reward(math.nan)
        episode.reward(math.inf)

    assert [({a.REWARD_STATUS: "error", a.RUN_KIND: "train"}, 2)] == points(reader, metrics.REWARDS_INVALID)
    assert [] == points(reader, metrics.REWARDS_VALUE)


def test_components_of_a_step_are_measured_like_those_of_a_scoring(reader: InMemoryMetricReader) -> None:
    """
    Whether they are attributes of the step or of a scoring's span.
    """
    with configured(reader), mttp.episode() as episode:
        episode.step().reward(0.75, components={"speed": 0.5, "fuel": 0.25})
        episode.step()._reward_of(0.75, {"speed": 0.5, "fuel": 0.25}, at=1)

    assert [(2, 1.5)] == [value for _, value in points(reader, metrics.REWARDS_VALUE)]
    assert [(2, 1.0), (2, 0.5)] == [value for _, value in points(reader, metrics.REWARDS_SCORE)]


def test_packed_steps_are_measured_one_by_one(reader: InMemoryMetricReader) -> None:
    """
    They give the metrics of steps with spans.
    """
    with configured(reader, steps="packed"), mttp.episode() as episode:
        for _ in range(1500):
            with episode.step() as step:
                step.reward(1.0)

    ((_, (count, _)),) = points(reader, metrics.STEPS_DURATION)
    ((_, (_, length)),) = points(reader, metrics.EPISODES_LENGTH)
    assert (1500, 1500) == (count, length)


@pytest.mark.parametrize(
    ("timing", "times", "measured"),
    [
        ("live", {}, 0),
        ("live", {"start_time": 10, "end_time": 30}, 1),
        ("batch", {"start_time": 10, "end_time": 30}, 0),
    ],
)
def test_only_steps_with_times_of_their_own_are_measured(
    reader: InMemoryMetricReader, timing: str, times: dict[str, int], measured: int
) -> None:
    """
    A step of a recorded value may lack times, and then gets those of the whole episode.
    """
    episode = mttp.Episode(steps=(mttp.Step(action=1, **times),), timing=timing)
    with configured(reader) as session:
        session.record(episode, start_time=1, end_time=50)

    assert measured == sum(count for _, (count, _) in points(reader, metrics.STEPS_DURATION))
    assert [1] == [length for _, (_, length) in points(reader, metrics.EPISODES_LENGTH)]


def test_an_update_sets_gauges(reader: InMemoryMetricReader) -> None:
    """
    They have the newest value by policy; values that are not numbers are skipped.
    """
    with configured(reader):
        for kl in (0.5, 0.25):
            mttp.update(policy="tiny", loss=math.nan, kl=kl)

    dimensions = {a.POLICY_ID: "tiny", a.RUN_KIND: "train"}
    assert [(dimensions, 0.25)] == points(reader, metrics.UPDATES_KL)
    assert [(dimensions, 2)] == points(reader, metrics.UPDATES_FINISHED)
    assert [] == points(reader, metrics.UPDATES_LOSS)


def test_each_gauge_of_updates_is_a_field(reader: InMemoryMetricReader) -> None:
    """
    The registry has its name, and the value its attribute.
    """
    gauges = [
        name for name, one in registry.instruments().items() if (one.kind, one.number) == ("gauge", "double")
    ]
    fields = {name: name.rpartition(".")[2] for name in gauges if ".updates." in name}
    with configured(reader):
        mttp.update(policy="tiny", **dict.fromkeys(fields.values(), 0.5))  # type: ignore[arg-type]

    assert dict.fromkeys(fields, 0.5) == {name: value for name in fields for _, value in points(reader, name)}
    assert metrics.UPDATES_GRAD_NORM in fields


def test_metrics_ignore_sampling(reader: InMemoryMetricReader) -> None:
    """
    Otherwise means would be of the selected episodes only.
    """
    with configured(reader, sampling=0.0):
        for _ in range(4):
            with mttp.episode():
                pass

    ((_, count),) = points(reader, metrics.EPISODES_FINISHED)
    assert 4 == count


def test_failures_of_integrations_are_counted(reader: InMemoryMetricReader) -> None:
    """
    They are counted by library and error over all sessions; without a failure there is no metric.
    """
    provider = MeterProvider([reader])
    for number in range(2):
        with mttp.configure("memory://", meter_provider=provider):
            assert bool(number) == bool(points(reader, metrics.INTEGRATIONS_FAILURES))
            guard("gymnasium", lambda: {}["x"])
            guard("trl", lambda: 1 / 0)

    dimensions = [{a.INTEGRATION_NAME: "gymnasium", a.ERROR_TYPE: "KeyError"}]
    dimensions.append({a.INTEGRATION_NAME: "trl", a.ERROR_TYPE: "ZeroDivisionError"})
    assert [(each, 2) for each in dimensions] == points(reader, metrics.INTEGRATIONS_FAILURES)


def test_every_metric_of_the_registry_is_emitted() -> None:
    """
    The registry defines no metric that mttp does not emit.
    """
    from mttp.recording import metrics as episode_metrics

    assert registry.instruments().keys() == {*episode_metrics._METRICS, *episode_metrics._NAMES}

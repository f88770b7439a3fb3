"""What a span is does not hang on its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor
from specimen import EVERYTHING
from test_law import expected_of

import mttp
from mttp.recording import configuration
from mttp.testing import assert_same


class AtStart(SpanProcessor):
    """Renames spans by OpenTelemetry's API."""

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        span.update_name(f"service {span.name}")


class AtEnd(SpanProcessor):
    """Renames spans that have ended, as some vendors' documentation says."""

    def on_end(self, span: Any) -> None:
        span._name = "step of mine"


class Ending(SpanProcessor):
    """Renames spans right before they end."""

    def _on_ending(self, span: Any) -> None:
        span._name = "episode"


RENAMING = (AtStart, AtEnd, Ending)


def recorded(transport: str, *processors: SpanProcessor) -> mttp.Session:
    """A run with one span of nearly every type."""
    with mttp.configure(transport=transport, processors=processors) as session:
        with mttp.episode(env="toy") as episode:
            for _ in range(3):
                with episode.step() as step:
                    with step.model_call("tiny"), step.model_call("tiny", operation="step"):
                        pass
                    step.reward(1.0, components={"a": 1.0}, weights={"a": 1.0})
            with episode.agent("b") as agent, agent.step() as step:
                step.reward(2.0)
            session.flush()  # which leaves markers
        mttp.update(index=1, episodes=[episode])
        mttp.annotate(episode, "label", "good")
        with mttp.evaluate("suite", tasks=["x", "y"]) as evaluation:
            evaluation.result("x", score=1.0)
            evaluation.result("y", score=0.0)
    return session


def counted(source: Any) -> tuple[Any, ...]:
    """Return rewards, calls and counts of a recording, as `read` and `summarize` give them."""
    found = mttp.read(source)
    (episode,), (evaluation,) = found.episodes, found.evals
    summary = mttp.summarize(source)
    return (
        [(step.reward, len(step.calls), len(step.rewards)) for step in episode.steps],
        (episode.complete, [agent.id for agent in episode.agents], episode.return_, episode.span_id != ""),
        (len(found.runs), len(found.updates), len(found.annotations)),
        (len(evaluation.results), evaluation.status),
        (repr(summary), found.problems, summary.problems),
        len(mttp.scan(source).problems),
    )


@pytest.mark.parametrize("renaming", RENAMING)
@pytest.mark.parametrize("transport", ["memory://", "file://a.jsonl", "file://a.jsonl.gz"])
def test_a_renamed_recording_reads_as_any_other(transport: str, renaming: type[SpanProcessor]) -> None:
    """
    Steps, calls, scorings, agents, updates, annotations and evaluations, and nothing is missing.
    """
    plain = counted(recorded("memory://"))
    configuration.forget()
    session = recorded(transport, renaming())

    assert plain == counted(session if transport == "memory://" else transport.removeprefix("file://"))


@pytest.mark.parametrize("renaming", RENAMING)
def test_everything_comes_back_equal_whatever_spans_are_called(renaming: type[SpanProcessor]) -> None:
    """
    The law does not mention names.
    """
    with mttp.configure(transport="memory://", processors=[renaming()]) as session:
        session.record(EVERYTHING)
    (found,) = mttp.read(session).episodes

    assert_same(expected_of(EVERYTHING, found), found)


def test_a_step_that_is_renamed_once_is_a_step() -> None:
    """
    As by `trace.get_current_span().update_name` within it; the type is no fact of the user's.
    """
    session = mttp.configure(transport="memory://")
    with session, mttp.episode() as episode, episode.step() as step:
        step.span.update_name("reward of mine")
        step.reward(0.5)
    (found,) = mttp.read(session).episodes[0].steps

    assert (0.5, {}) == (found.reward, found.extra)


def test_a_renamed_recording_passes_the_check() -> None:
    """
    Each span has what its type must have, whatever it is called.
    """
    session = mttp.configure(transport="memory://", processors=[AtStart()])
    with session, mttp.episode(env="toy") as episode, episode.step() as step:
        step.reward(1.0)

    assert [] == list(mttp.check(session))


def test_a_span_renamed_by_a_collector_is_recognized_by_its_attributes() -> None:
    """
    It says no type: the recorder never heard of the new name.
    """
    plain = counted(recorded("file://a.jsonl"))
    renamed = re.sub(r'"name":"[^"]*","kind"', '"name":"unnamed","kind"', Path("a.jsonl").read_text())
    Path("b.jsonl").write_text(renamed)

    assert plain == counted("b.jsonl")


def test_metrics_know_a_renamed_step() -> None:
    """
    Counters of a run go on under whatever name.
    """
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    session = mttp.configure(transport="memory://", processors=[AtStart()], meter_provider=provider)
    with session, mttp.episode(env="toy") as episode, episode.step() as step:
        step.reward(1.0)
    data: Any = reader.get_metrics_data()
    names = {one.name for part in data.resource_metrics for s in part.scope_metrics for one in s.metrics}

    assert {"mttp.episodes.finished", "mttp.steps.duration"} <= names

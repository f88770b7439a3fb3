"""Sizes of recordings before they are made, beside what was measured and what is recorded now."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mttp
from mttp.errors import ConfigureError, MttpError
from mttp.study.sizing import Workload, size
from mttp.study.sizing.estimate import AGENT_QUEUE_BYTES, COLLECTOR_BUFFER_BYTES, per_second
from mttp.study.sizing.measured import BYTES, TOLERANCE
from mttp.study.sizing.quantities import Quantities
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.profiles import PROFILES, named
from mttp.transports.pipeline import pipeline

ROOT = Path(__file__).parents[2]
MEASURED: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / "sizes.json").read_text())
PLAIN = Workload(tokens=0, characters=0)


# What was measured.


@pytest.mark.parametrize("form", BYTES)
def test_the_table_gives_back_what_was_measured(form: str) -> None:
    """
    Every recording that was measured, within the stated error of its form.
    """
    rows = [row for row in MEASURED if row["form"] == form]
    errors = [abs(BYTES[form].dot(Quantities(**row["parts"])) / row["bytes"] - 1) for row in rows]

    assert 12 < len(rows)
    assert max(errors) <= TOLERANCE[form] < 0.25


@pytest.mark.parametrize("form", ["file", "gzip", "zstd"])
def test_a_size_is_that_of_the_recording_that_was_measured(form: str) -> None:
    """
    For the inputs of a measurement in which each step was a segment, `size` says its bytes.
    """
    rows = [row for row in MEASURED if row["form"] == form and row["each"] == "step"]
    chats = [row for row in rows if not row["workload"]["calls"] and row["workload"]["content"]]
    for row in chats:
        workload = Workload(**row["workload"] | {"rate": 0.2})
        found = size(workload, to=form, episodes=row["episodes"])

        assert found.kept[form].bytes_kept == pytest.approx(row["bytes"], rel=TOLERANCE[form])
        assert found.kept[form].bytes_per_second == found.bytes_per_second
    assert 5 == len(chats)


@pytest.mark.parametrize("content", [True, False])
def test_the_table_holds_for_what_is_recorded_now(content: bool) -> None:
    """
    Steps of another size than any that was measured; a change of what is written has to be measured again.
    """
    workload = Workload(steps=6, tokens=100, characters=900, calls=1, content=content, token_ids=content)
    rng = np.random.default_rng(3)
    with mttp.configure("file://a.jsonl", run="now", content=content) as session:
        for number in range(40):
            with mttp.episode(env="tool-chat", task=f"chat/{number}", policy="p", seed=number) as episode:
                for _ in range(6):
                    with episode.step() as step:
                        user = {"role": "user", "content": "b" * 300}
                        step.observation([{"role": "tool", "content": "a" * 300}, user])
                        step.action("c" * 300)
                        step.tokens(ids=rng.integers(0, 150_000, 100), logprobs=rng.random(100, np.float32))
                        with step.tool_call("search", arguments={"query": "d" * 40}, id="1") as call:
                            call.result("e" * 200)
                episode.reward(1.0, components={"a": 1.0, "b": 0.0, "c": 0.5}, weights={"a": 1.0})
                episode.end(terminated=True, outcome="success")
        session.flush()
    one = workload.of_episode()
    whole = {field.name: 40 * getattr(one, field.name) for field in fields(one)}
    parts = workload.with_segments(Quantities(**whole | {"processes": 1, "markers": 0}), 3)

    assert Path("a.jsonl").stat().st_size == pytest.approx(BYTES["file"].dot(parts), rel=0.1)


# What a workload does.


def test_spans_are_counted() -> None:
    """
    A root, a reward and a marker for each episode, and each step and call.
    """
    found = size(Workload(workers=10, steps=4, rate=2, calls=0.5))

    assert (20, 5, 45) == (found.steps_per_second, found.episodes_per_second, found.spans_per_second)


@pytest.mark.parametrize(
    ("rate", "writes"), [(0.2, 0.2), (1.0, 1.0), (2.5, 2.5), (10.0, 4.0), (1000.0, 4.99)]
)
def test_a_worker_waits_for_others_before_it_writes(rate: float, writes: float) -> None:
    """
    Slow steps are written one by one, and fast ones five times a second.
    """
    assert writes == pytest.approx(per_second(replace(PLAIN, rate=rate)).segments, rel=0.01)


def test_a_megabyte_is_written_at_once() -> None:
    """
    However little time has passed.
    """
    workload = Workload(rate=100, tokens=0, characters=1e6)

    assert 100 / 1.1 == pytest.approx(per_second(workload).segments, rel=0.05)


def test_what_a_form_takes_grows_with_everything() -> None:
    """
    More of anything is never smaller, in any form; all is proportional to the workers.
    """
    base = size(Workload())
    for more in (
        {"tokens": 512},
        {"characters": 3000},
        {"calls": 1},
        {"rate": 2.0},
    ):
        larger = size(Workload(**more))
        assert all(
            larger.kept[form].bytes_per_second > base.kept[form].bytes_per_second for form in base.kept
        )
    many = size(Workload(workers=64))
    assert 64 * base.bytes_per_second == pytest.approx(many.bytes_per_second)
    assert 64 * base.kept["zstd"].bytes_kept == pytest.approx(many.kept["zstd"].bytes_kept)


def test_recordings_are_kept_for_days_or_episodes() -> None:
    """
    A run that is over earlier is kept as a whole; a longer one for so many days.
    """
    day, short = size(Workload(), days=1), size(Workload(), days=1, episodes=10)
    long = size(Workload(), days=1, episodes=1e6)

    assert (86_400, 10_800) == (day.seconds, day.episodes)
    assert (80, 10) == (short.seconds, short.episodes)
    assert short.kept["file"].bytes_kept < day.kept["file"].bytes_kept / 500
    assert long.kept["file"].bytes_kept == day.kept["file"].bytes_kept
    assert 8e6 == long.seconds


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_withholds_arrays_beyond_its_limits(profile: str) -> None:
    """
    Long arrays are left out whole, and so are those beyond the bytes of an episode or a trace.
    """
    limits = named(profile).withholding
    assert limits.max_elements is not None
    fits = size(Workload(steps=2, tokens=900, token_ids=False), to="collector", profile=profile)
    long = size(Workload(steps=2, tokens=limits.max_elements + 1), to="collector", profile=profile)
    many = Workload(steps=10_000, tokens=900, token_ids=False, content=False)

    assert not any("beyond the profile's limits" in note for note in fits.notes)
    assert any("of 2 of 2 steps are beyond the profile's limits" in note for note in long.notes)
    most = limits.max_episode_bytes or limits.max_trace_bytes
    assert most is not None
    assert many.of_episode(limits).logprobs * 4 <= most < many.of_episode().logprobs * 4


def test_the_limit_of_an_episode_is_that_of_the_transport() -> None:
    """
    So many steps have their log probabilities in a collector's requests as are counted.
    """
    limits = replace(named("collector").withholding, max_episode_bytes=1_000)
    told = Workload(steps=8, tokens=100, token_ids=False, content=False).of_episode(limits)
    spent = kept = 0
    for _ in range(8):
        found = limits.keep({"mttp.token.logprobs": np.zeros(100, np.float32)}, spent=spent)
        spent, kept = found.spent, kept + ("mttp.token.logprobs" in found.values)

    assert (200, 2) == (told.logprobs, kept)


def test_without_tokens_or_content_there_is_nothing_to_withhold() -> None:
    """
    No token, no character and no call is no note either.
    """
    found = size(replace(PLAIN, content=False, token_ids=False))

    assert ((), 0, 0) == (found.notes, PLAIN.of_episode().token_blocks, PLAIN.of_episode().contents)


# Constants that other parts of mttp have.


def test_limits_are_those_of_the_transports() -> None:
    """
    The queue for a collector, the seconds before a write, and the queue on disk of the agent.
    """
    agent = (ROOT / "collector-config" / "agent.yaml").read_text()

    assert COLLECTOR_BUFFER_BYTES == OtlpTransport.buffer_bytes
    assert f"queue_size: {AGENT_QUEUE_BYTES}" in agent
    assert 1 / pipeline.INTERVAL == pytest.approx(replace(PLAIN, rate=1e9).writes)


def test_public_figures_have_their_source() -> None:
    """
    A Collector's by its load tests; Tempo's only with its profile.
    """
    plain = size(Workload(workers=5_000), to="collector").collector
    tempo = size(Workload(workers=5_000), to="collector", profile="tempo").collector

    assert plain is not None
    assert tempo is not None
    assert (None, 1) == (plain.tempo_ingesters, len(plain.sources))
    assert (True, 2) == ((tempo.tempo_ingesters or 0) >= 5, len(tempo.sources))
    assert 0.13 < plain.processors < 2


# Odd numbers.


@pytest.mark.parametrize("name", ["workers", "steps", "rate", "tokens", "characters", "calls"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 1e13, "8"])
def test_a_number_out_of_range_is_an_error(name: str, value: Any) -> None:
    """
    It names the value and what is possible.
    """
    with pytest.raises(ConfigureError, match=f"{name} is .*; it must be a number from"):
        Workload(**{name: value})


@pytest.mark.parametrize("name", ["workers", "steps", "rate"])
def test_nobody_records_nothing(name: str) -> None:
    """
    No workers, no steps, and steps that never come are errors.
    """
    with pytest.raises(ConfigureError, match=f"{name} is 0"):
        Workload(**{name: 0})


@pytest.mark.parametrize("wrong", [{"days": 0}, {"days": math.nan}, {"episodes": -1}, {"to": "tape"}])
def test_wrong_arguments_are_errors(wrong: dict[str, Any]) -> None:
    """
    Days and episodes that are none, and a transport that is unknown; an unknown profile too.
    """
    with pytest.raises(ConfigureError):
        size(Workload(), **wrong)
    with pytest.raises(MttpError, match="unknown profile"):
        size(Workload(), to="collector", profile="tape")


@pytest.mark.parametrize("to", ["file", "collector"])
@pytest.mark.parametrize("value", [1e12, 1.5, 1.0])
def test_all_numbers_that_are_possible_are_computed(to: str, value: float) -> None:
    """
    The largest, fractions, and the smallest: no result is infinite or negative.
    """
    workload = Workload(workers=value, steps=value, rate=value, tokens=value, characters=value, calls=value)
    slow = Workload(workers=1e12, steps=1e12, rate=1e-9)
    for one in (workload, slow):
        found = size(one, to=to, days=1e12, profile="tempo")
        numbers = [found.bytes_per_second, found.spans_per_second, found.writes_per_second, found.seconds]
        numbers += [kept.bytes_kept for kept in found.kept.values()]

        assert all(0 < number < math.inf for number in numbers)

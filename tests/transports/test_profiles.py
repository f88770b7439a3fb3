"""Profiles: what a store does not keep is not sent, and said on the span."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from otlp import recorded
from specimen import EVERYTHING, episodes
from typer.testing import CliRunner

import mttp
from mttp import transports
from mttp.cli.app import app
from mttp.codec import blocks, fitting, left_out
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError, TransportError
from mttp.model.curves import update_curves
from mttp.model.spans import SpanRecord
from mttp.model.values import same
from mttp.semconv import attributes as a
from mttp.testing import OtlpReceiver
from mttp.transports.otlp import OtlpTransport, profiles
from mttp.transports.otlp.profiles import PROFILES

WHOLE = replace(PROFILES["strict"].withholding, content=True)
"""The least that a store keeps, of everything there is."""


def opened(address: str, **options: Any) -> OtlpTransport:
    """The transport at an address."""
    found = transports.open(address, **options)
    assert isinstance(found, OtlpTransport)
    return found


def unnamed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The attributes that are not what they were, and of which no omission says so."""
    named = {str(said).partition(": ")[0] for said in after.get(a.OMISSIONS, ())}
    arrays_gone = any(key.startswith("mttp.token.") for key in named)
    ours = {a.OMISSIONS, a.TOKEN_ENCODING, a.TOKEN_OMITTED_REASON}
    told = ours | ({a.TOKEN_LAYOUT} if arrays_gone else set())
    return [
        key
        for key in {*before, *after} - told
        if not same(before.get(key), after.get(key)) and key not in named
    ]


@pytest.mark.parametrize(
    ("address", "profile"),
    [
        ("http://localhost:4318", "jaeger"),
        ("grpc://localhost:4317", "jaeger"),
        ("http://tempo:4318", "tempo"),
        ("grpc://tempo-distributor.obs.svc:4317", "tempo"),
        ("https://jaeger.example.com", "jaeger"),
        ("http://localhost:6006", "phoenix"),
        ("https://app.phoenix.arize.com", "phoenix"),
        ("http://localhost:5000", "mlflow"),
        ("http://mlflow/", "mlflow"),
        ("http://localhost:10428/insert/opentelemetry", "strict"),
    ],
)
def test_the_profile_is_guessed_where_the_endpoint_tells(address: str, profile: str) -> None:
    """
    By the host's name, the path or the port; behind whatever tells nothing there may be a Jaeger.
    """
    assert profile == opened(address).profile


def test_what_is_stated_precedes_what_is_guessed() -> None:
    """
    In the address as in the arguments.
    """
    found = [opened("http://tempo:4318?profile=jaeger"), opened("http://tempo:4318", profile="jaeger")]

    assert ["jaeger", "jaeger"] == [one.profile for one in found]
    assert "http://tempo:4318/v1/traces?profile=jaeger" == found[0].address


@pytest.mark.parametrize("name", ["Tempo", "", "grafana"])
def test_an_unknown_profile_is_an_error_that_names_those_there_are(name: str) -> None:
    """
    At once, and not when the first span is lost.
    """
    with pytest.raises(TransportError, match=r"known are jaeger, collector, tempo, .* strict, all"):
        transports.open(f"http://localhost:4318?profile={name}")


def test_configure_takes_the_profile_for_every_receiver_that_names_none() -> None:
    """
    A route's own precedes it, and files have none.
    """
    given = ["memory://", "http://localhost:1", mttp.Route("http://localhost:2", profile="phoenix")]

    with mttp.configure(given, profile="tempo", close_timeout=0):
        told = os.environ["MTTP_TRANSPORT"].split(",")

    assert ["tempo", "phoenix"] == [address.rpartition("profile=")[2] for address in told[-2:]]


def test_a_profile_needs_a_receiver() -> None:
    """
    A file keeps everything, so asking for a profile is an error.
    """
    with pytest.raises(ConfigureError, match=r"profile='tempo' is for receivers, .* in Route\('memory://'\)"):
        mttp.configure("memory://", profile="tempo")


def test_a_profile_holds_for_what_variables_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The endpoint may come from OpenTelemetry's variables.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")

    with mttp.configure(profile="phoenix", close_timeout=0):
        told = os.environ["MTTP_TRANSPORT"]

    assert told.endswith("?profile=phoenix")


def test_mlflow_gets_an_experiment() -> None:
    """
    It takes nothing that names none; headers of the user's precede.
    """
    name = "x-mlflow-experiment-id"

    assert "0" == opened("http://localhost:5000").settings.headers[name]
    assert "7" == opened("http://localhost:5000", headers={name: "7"}).settings.headers[name]


def test_requests_are_no_larger_than_the_store_takes() -> None:
    """
    Options precede the profile here, too.
    """
    assert 2**20 == opened("http://localhost:4318?profile=strict").settings.max_bytes
    assert 2**21 == opened("http://localhost:4318?profile=strict&max_bytes=2MiB").settings.max_bytes


@pytest.mark.parametrize("name", PROFILES)
def test_everything_that_a_profile_changes_is_named(name: str) -> None:
    """
    Of the episode that uses every part of the vocabulary, no attribute goes or changes in silence.
    """
    withholding, spent = replace(PROFILES[name].withholding, content=True), 0

    for span in recorded(EVERYTHING):
        kept = withholding.keep(span.values, spent=spent)
        spent = kept.spent
        assert [] == unnamed(span.values, kept.values)
        assert kept.changed is (kept.values is not span.values)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(episodes())
def test_of_any_episode_strict_leaves_nothing_that_is_lost_elsewhere(value: mttp.Episode) -> None:
    """
    No bytes, no NaN, no long text; and what is missing is named.
    """
    for span in recorded(value):
        kept = WHOLE.keep(span.values).values
        texts = [len(text.encode()) for text in kept.values() if isinstance(text, str)]

        assert [] == unnamed(span.values, kept)
        assert not any(map(fitting.has_binary, kept.values()))
        assert not any(map(fitting.has_non_finite, kept.values()))
        assert not any(map(fitting.is_nested, kept.values()))
        assert max(texts, default=0) <= 1024


def test_a_long_text_is_cut_between_characters() -> None:
    """
    And the omission says how much of it there was.
    """
    values = {a.OBSERVATION_VALUE: "ü" * 2000, a.STEP_INDEX: 1}

    kept = Withholding(max_text_bytes=2047).keep(values).values

    assert "ü" * 1023 == kept[a.OBSERVATION_VALUE]
    assert [f"{a.OBSERVATION_VALUE}: cut to 2047 of 4000 bytes"] == kept[a.OMISSIONS]


def test_a_long_document_goes_whole() -> None:
    """
    Half of a JSON document can't be read.
    """
    values = {a.INPUTS_JSON: '{"answer":"' + "4" * 3000 + '"}'}

    kept = Withholding(max_text_bytes=2048).keep(values).values

    assert {a.OMISSIONS: [f"{a.INPUTS_JSON}: 3013 bytes, the limit is 2048"]} == kept


def test_of_a_token_block_only_the_array_with_nan_goes() -> None:
    """
    The others stay readable, as the layout says.
    """
    step = mttp.Step(tokens=mttp.Tokens(ids=[1, 2], logprobs=[-0.5, math.nan], values=[0.1, 0.2]))
    (span,) = [one for one in recorded(mttp.Episode(steps=(step,))) if one.name == "step"]
    kept = Withholding(non_finite=False).keep(span.values).values

    assert [a.TOKEN_LOGPROBS not in kept, a.TOKEN_VALUES in kept] == [True, True]
    assert '[["ids","int64",2,"completion"],["values","float64",2,"completion"]]' == kept[a.TOKEN_LAYOUT]


def test_what_is_nested_is_written_as_json() -> None:
    """
    Which says more than the pieces that a store would take it to.
    """
    values = {a.OBSERVATION_VALUE: {"grid": [[1, 2]]}, f"{a.METADATA}.x": [1, "a"], f"{a.METADATA}.y": [1, 2]}

    kept = Withholding(nested=False).keep(values).values

    assert ('{"grid":[[1,2]]}', '[1,"a"]', [1, 2]) == tuple(kept[key] for key in values)
    assert ["mttp.metadata.x: written as JSON", f"{a.OBSERVATION_VALUE}: written as JSON"] == kept[
        a.OMISSIONS
    ]


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ('{"big":9223372036854775808}', False),
        ("-9223372036854775809", False),
        ('{"big":9223372036854775807}', True),
        ('{"text":"99999999999999999999"}', True),
        ("99999999999999999999.5", True),
        ("a1" + "7" * 30, True),
    ],
)
def test_json_with_a_huge_integer_goes_where_it_can_not_be_read(text: str, stays: bool) -> None:
    """
    Only where a parser would find an integer that no 64 bits hold.
    """
    kept = Withholding(huge_integers=False).keep({a.INPUTS_JSON: text}).values

    assert stays is (a.INPUTS_JSON in kept)


def test_of_packed_steps_a_column_of_lists_goes_where_lists_of_lists_do() -> None:
    """
    As text it could not be told apart from the texts of the steps.
    """
    values = packed(reward=[1.0] * 100, action=[[at] for at in range(100)])

    kept = Withholding(nested=False).keep(values).values

    assert [{"reward": 1.0}] * 100 == blocks.rows(kept)
    assert ["mttp.steps.column.action: a column of lists is not supported by the receiver"] == kept[
        a.OMISSIONS
    ]


def packed(**columns: Any) -> dict[str, Any]:
    """A block of a hundred steps."""
    rows = [
        {key: values[at] for key, values in columns.items() if values[at] is not None} for at in range(100)
    ]
    times = list(range(100))
    return blocks.encode(blocks.columns(rows), first_index=0, start_times=times, end_times=times)


def test_of_packed_steps_only_the_values_that_are_no_numbers_go() -> None:
    """
    A step whose estimate is NaN says so; the others keep theirs.
    """
    values = packed(reward=[1.0] * 100, estimate=[math.nan, *[0.5] * 99])

    kept = Withholding(non_finite=False).keep(values).values

    rows = blocks.rows(kept)
    assert ["estimate: nan is not supported by the receiver"] == rows[0][a.OMISSIONS]
    assert [0.5] * 99 == [row["estimate"] for row in rows[1:]]


def test_of_packed_steps_a_column_goes_where_its_layout_is_too_long() -> None:
    """
    A layout that was cut would take every column with it.
    """
    sparse = [None if at % 2 else 0.5 for at in range(100)]
    values = packed(reward=[1.0] * 100, estimate=sparse)

    kept = Withholding(max_text_bytes=128).keep(values).values

    assert [{"reward": 1.0}] * 100 == blocks.rows(kept)
    assert kept[a.OMISSIONS][0].startswith("mttp.steps.column.estimate: mttp.steps.layout takes ")


def test_a_trace_stays_within_its_bytes_and_its_root_has_space() -> None:
    """
    Once it is nearly full, spans go without arrays; the root still says everything.
    """
    withholding, spent = Withholding(max_trace_bytes=100_000), 0
    found = []
    for _ in range(20):
        kept = withholding.keep({a.ACTION_VALUE: np.zeros(1000), a.STEP_INDEX: 1}, spent=spent)
        spent = kept.spent
        found.append(a.ACTION_VALUE in kept.values)
    root = withholding.keep({a.EPISODE_SPAN_COUNT: 20, a.ENV_KWARGS: "x" * 900}, spent=spent)

    assert ([True] * 8 + [False] * 12, False) == (found, root.changed)
    assert spent < root.spent < 100_000


def test_what_is_left_out_is_read_back_as_left_out() -> None:
    """
    Sent to a store that loses NaN and bytes, an episode arrives whole but for these, and says which.
    """
    with OtlpReceiver() as receiver:
        with (
            mttp.configure(receiver.http_address, profile="phoenix", token_ids=True),
            mttp.episode(env="toy", metadata={"key": b"\x00"}) as episode,
            episode.step() as made,
        ):
            made.tokens(ids=[1, 2], logprobs=[-0.5, math.nan])
        found = mttp.read(receiver)

    assert [] == found.problems
    assert ("mttp.metadata.key: bytes are not supported by the receiver",) == found.episodes[0].omissions
    (step,) = found.episodes[0].steps
    assert (
        f"{a.TOKEN_LOGPROBS}: NaN and infinities are not supported by the receiver",
        f"{a.TOKEN_MEAN_LOGPROB}: nan is not supported by the receiver",
    ) == step.omissions
    assert [1, 2] == step.tokens.ids.tolist()


def diverged(address: str, profile: str | None = None) -> None:
    """Send an episode, a packed one and an update with numbers that no JSON holds."""
    with mttp.configure(address, profile=profile, content=True):
        with mttp.episode(env="toy", metadata={"limit": math.inf}) as episode:
            episode.metric("ratio", -math.inf)
            with episode.step() as step:
                step.tokens(ids=range(5000), logprobs=[-0.5] * 5000)
            with episode.step() as step:
                step.tokens(ids=[1, 2], logprobs=[-0.5, math.nan])
            episode.reward(math.nan)
        mttp.update(7, loss=math.nan, kl=0.5, metrics={"scale": math.inf})


def test_by_default_no_number_is_sent_that_jaeger_can_not_show() -> None:
    """
    A list of Jaeger with one such number anywhere is not shown at all. Each is named, and is there when read.
    """
    with OtlpReceiver() as receiver:
        diverged(receiver.http_address)
        spans = list(receiver.records())
        found = mttp.read(receiver)
    (episode,), (update,) = found.episodes, found.updates

    assert [] == [span.name for span in spans if any(map(fitting.has_non_finite, span.attributes.values()))]
    assert "mttp.metric.ratio: -inf is not supported by the receiver" in episode.omissions
    assert (-math.inf, math.inf) == (episode.metrics["ratio"], episode.metadata["limit"])
    assert (math.inf, 0.5) == (update.metrics["scale"], update.kl)
    assert math.isnan(update.loss or 0.0)
    assert {"update/kl": 0.5, "update/not_finite": 2.0} == update_curves(update)
    assert ("error", None) == (episode.reward.status, episode.reward.value)


@pytest.mark.parametrize("profile", ["collector", "all"])
def test_a_profile_that_keeps_all_numbers_is_a_choice(profile: str) -> None:
    """
    A Collector takes NaN; a full copy has arrays of any length, too.
    """
    with OtlpReceiver() as receiver:
        diverged(receiver.http_address, profile)
        found = mttp.read(receiver)
    (episode,) = found.episodes
    long, short = episode.steps

    assert () == episode.omissions
    assert [-0.5, math.nan] == pytest.approx(short.tokens.logprobs.tolist(), nan_ok=True)
    assert (profile == "all") is (long.tokens.ids is not None)
    assert () == short.omissions


def test_an_omission_of_another_kind_restores_nothing() -> None:
    """
    Only a number that was NaN or infinite can be told from its omission, and only where it is missing.
    """
    values = {a.OMISSIONS: ["mttp.metric.a: withheld", "mttp.metric.b: nan is not supported by the receiver"]}

    assert ["mttp.metric.b", a.OMISSIONS] == sorted(left_out.restored(values))
    assert 1.0 == left_out.restored(values | {"mttp.metric.b": 1.0})["mttp.metric.b"]
    assert {a.OMISSIONS: 7} == left_out.restored({a.OMISSIONS: 7})


def test_a_packed_step_has_the_number_that_was_left_out() -> None:
    """
    Of columns as of spans.
    """
    values = packed(**{a.STEP_VALUE_ESTIMATE: [math.nan, *[0.5] * 99]})
    kept = Withholding(non_finite=False).keep(values).values
    first, second, *_ = blocks.decode(SpanRecord(trace_id="", span_id="", name="steps", attributes=kept))

    assert math.isnan(first.value_estimate or 0.0)
    assert 0.5 == second.value_estimate


def test_every_profile_is_known_by_its_name() -> None:
    """
    The table's keys are what the profiles call themselves.
    """
    assert list(PROFILES) == [profiles.named(name).name for name in PROFILES]


def test_names_say_outcomes_if_that_is_wanted() -> None:
    """
    Only at the receiver, live as in a push; readers don't depend on names.
    """
    with OtlpReceiver() as live, OtlpReceiver() as pushed:
        with mttp.configure([f"{live.http_address}?names=outcome", "file://a.jsonl"]):
            for outcome in ("success", None):
                with mttp.episode(env="toy") as episode:
                    with episode.step() as step:
                        step.reward(1.0)
                    episode.end(outcome=outcome)
            with mttp.episode(env="toy") as episode:
                episode.end(status="aborted")
        arguments = ["push", "a.jsonl", "--to", f"{pushed.http_address}?names=outcome"]
        assert 0 == CliRunner().invoke(app, arguments).exit_code
        of_live, of_push = ({record.name for record in one.records()} for one in (live, pushed))
        files, receivers = mttp.read("a.jsonl"), mttp.read(live)

    assert {"episode toy", "episode toy success", "episode toy aborted", "step 0"} == of_live - {
        "run",
        "run.start",
    }
    assert of_live == of_push
    assert [] == receivers.problems
    for whole, renamed in zip(files, receivers, strict=True):
        assert (whole.status, whole.outcome, len(whole.steps)) == (
            renamed.status,
            renamed.outcome,
            len(renamed.steps),
        )


def test_a_marker_has_the_environment_in_its_name() -> None:
    """
    As the root will: an episode that runs is listed by its marker.
    """
    with mttp.configure("memory://") as session, mttp.episode(env="toy"):
        session.flush()

    assert {"run", "run.start", "episode toy"} | {"episode.start toy"} == {
        record.name for record in session.records()
    }

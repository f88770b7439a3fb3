"""Collectors themselves, where OTELCOL names one: what the shipped configurations promise is what they do."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from clickhouse import FilledByCollector
from collectors import (
    HOME,
    KAFKA,
    PROGRAM,
    VARIABLES,
    Collector,
    broker,
    free_port,
    merged,
    nowhere,
    send,
    sink,
    spans,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from polling import eventually
from specimen import EVERYTHING

import mttp
from mttp.recording import configuration
from mttp.semconv import attributes as a
from mttp.testing import assert_same

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PROGRAM, reason="OTELCOL=a Collector, as .ci/backends builds it"),
]
FINISHED = "mttp_episodes_finished_total"
SHIPPED = [
    *(
        [path.relative_to(HOME).as_posix()]
        for path in sorted(HOME.rglob("*.yaml"))
        if "\nreceivers:\n" in path.read_text()
    ),
    *(["agent.yaml", f"{name}/agent.yaml"] for name in ("clickhouse", "kafka")),
]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    """Start Collectors, each in a folder of its own; they end with the test."""
    with ExitStack() as collectors:
        numbers = itertools.count()

        def start(*configurations: str, over: dict[str, Any] | None = None, **options: Any) -> Collector:
            folder = tmp_path / f"collector-{next(numbers)}"
            return collectors.enter_context(Collector(folder, *configurations, over=over, **options))

        yield start


def balanced(*samplers: str) -> dict[str, Any]:
    """Return what makes gateway-lb.yaml send to these addresses, instead of those that a name has."""
    resolver = {"dns": None, "static": {"hostnames": list(samplers)}}
    return {"exporters": {"load_balancing": {"resolver": resolver}}}


def play(count: int, *, env: str = "toy") -> None:
    """Record episodes of two steps, of which every other one succeeds."""
    for number in range(count):
        with mttp.episode(env=env, task=f"train/{number % 5}") as episode:
            for index in range(2):
                with episode.step() as step:
                    step.observation([float(index), -1.0])
                    step.tokens(ids=[1, 2, index], logprobs=[-0.5, -0.25, -1e-9])
                    step.reward(float(index))
            episode.end(terminated=True, outcome="success" if number % 2 else "failure")


def foreign(address: str, attributes: dict[str, Any]) -> None:
    """Send a span of another program."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    with provider.get_tracer("other").start_as_current_span("reward foreign") as span:
        span.set_attributes(attributes)
    provider.shutdown()


def arrived(path: Path, count: int) -> mttp.Recording:
    """Return what a file has, once that is so many whole episodes, and the ends of their runs."""
    configuration.forget()

    def whole() -> mttp.Recording | None:
        if not path.exists() or not path.stat().st_size:
            return None
        recording = mttp.read(path)
        ended = all(run.complete for run in recording.runs)
        return recording if (len(recording), recording.problems, ended) == (count, [], True) else None

    recording = eventually(whole)
    assert recording is not None, mttp.read(path).problems
    return recording


def named(path: Path, name: str) -> Counter[str]:
    """Return how often each span of this name is in a file exporter's lines."""
    return Counter(span_id for span_id, span_name in spans(path) if span_name == name)


@pytest.mark.parametrize("files", SHIPPED, ids=" ".join)
def test_a_collector_accepts_each_file(files: list[str]) -> None:
    """
    By `validate`, with a value for each variable that it names.
    """
    configs = [argument for name in files for argument in ("--config", str(HOME / name))]
    done = subprocess.run(
        [PROGRAM, "validate", *configs], env={**os.environ, **VARIABLES}, capture_output=True, text=True
    )

    assert ("", "") == (done.stdout, done.stderr)
    assert 0 == done.returncode


@pytest.mark.parametrize("options", ["http", "http?compression=none", "grpc", "grpc?compression=none"])
def test_an_agent_passes_on_every_field(running: Any, tmp_path: Path, options: str) -> None:
    """
    From training by the agent into a file: what is read of it equals what the program recorded.
    """
    store = running(over=sink(tmp_path / "received.jsonl"))
    agent = running("agent.yaml", GATEWAY=store.grpc_address)
    scheme, _, query = options.partition("?")
    address = agent.http_address if scheme == "http" else f"grpc://{agent.grpc_address}"
    sent = mttp.Route(f"{address}?{query}", profile="collector", content=True, token_ids=True)
    settings = {"lr": 3e-4, "nested": {"a": [1, None]}}
    with mttp.configure(["file://recorded.jsonl", sent], config=settings) as session:
        session.record(EVERYTHING)
        play(20)
        with mttp.episode(env="long") as episode:
            for number in range(1500):
                with episode.step() as step:
                    step.observation(np.array([number, -0.0], np.float32))
                    step.reward(number / 3)
        with mttp.episode(env="broken") as scored:
            scored.reward(float("inf"), components={"nan": float("nan"), "tiny": 5e-324})
        with pytest.raises(ValueError, match="broke"), mttp.episode(env="crashed") as crashed, crashed.step():
            raise ValueError("the environment broke")
        mttp.score(scored, 0.25, grader="judge", explanation="日本")
        mttp.update(0, loss=0.5, kl=float("inf"))
    assert not session.stats.lost
    expected = mttp.read("recorded.jsonl")
    found = arrived(tmp_path / "received.jsonl", len(expected))

    assert [] == expected.problems
    for kind in ("episodes", "runs", "updates", "annotations"):
        assert_same(getattr(expected, kind), getattr(found, kind))
    assert [] == agent.complaints()


@pytest.mark.parametrize("address", ["http_address", "grpc_address"])
def test_an_agent_passes_on_large_spans(running: Any, tmp_path: Path, address: str) -> None:
    """
    As large as its receiver takes them; over gRPC, mttp sends at most 4 MiB and says what it left out.
    """
    store = running(over=sink(tmp_path / "received.jsonl"))
    agent = running("agent.yaml", GATEWAY=store.grpc_address)
    place = getattr(agent, address)
    with mttp.configure(mttp.Route(place if "://" in place else f"grpc://{place}", content=True)) as session:
        for mebibytes in (1, 3, 12):
            with mttp.episode(env=f"{mebibytes} MiB") as episode, episode.step() as step:
                step.observation("x" * (mebibytes * 2**20))
    found = arrived(tmp_path / "received.jsonl", 3)

    assert not session.stats.lost
    sizes = {episode.env: len(episode.steps[0].observation or "") for episode in found.episodes}
    large = 12 * 2**20 if address == "http_address" else 0
    assert {"1 MiB": 2**20, "3 MiB": 3 * 2**20, "12 MiB": large} == sizes
    assert (large == 0) == any(step.omissions for episode in found.episodes for step in episode.steps)


@pytest.mark.parametrize("name", ["clickhouse", "kafka"])
def test_an_agent_sends_two_ways(running: Any, tmp_path: Path, name: str) -> None:
    """
    All spans to the gateway, and all of them to what keeps them for statistics or training.
    """
    stores = [running(over=sink(tmp_path / f"{name}.jsonl")) for name in ("gateway", "other")]
    ways = {"GATEWAY": stores[0].grpc_address, f"{name.upper()}_GATEWAY": stores[1].grpc_address}
    agent = running("agent.yaml", f"{name}/agent.yaml", **ways)
    with mttp.configure(mttp.Route(agent.http_address, content=True, token_ids=True)):
        play(10)
    one, other = (arrived(tmp_path / f"{name}.jsonl", 10) for name in ("gateway", "other"))

    assert_same(one.episodes, other.episodes)


def counting(
    running: Any, name: str, *, over: dict[str, Any] | None = None, path: Path | None = None
) -> Collector:
    """Start a Collector that makes metrics of spans; what it sends on goes to a file, or nowhere."""
    store = sink(path) if path else nowhere()
    place = running(over=store).grpc_address
    stores = {
        f"otlp_grpc/{name}": {"endpoint": place, "tls": {"insecure": True}} for name in ("jaeger", "tempo")
    }
    if name == "gateway-lb.yaml":
        return running(name, over=merged(balanced(place), over or {}))
    (Path("received")).mkdir()
    stores["file"] = {"path": str(Path("received/traces.jsonl").absolute())}
    return running(name, over=merged({"exporters": stores}, over or {}))


@pytest.mark.parametrize("name", ["gateway-lb.yaml", "dev/collector.yaml"])
def test_requests_at_once_are_each_counted_once(running: Any, name: str) -> None:
    """
    As many agents send them: none of their episodes is missing in the metrics.
    """
    gateway = counting(running, name)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: send(gateway.grpc_address, 40, 20), range(16)))

    assert eventually(lambda: gateway.count(FINISHED) >= 16 * 40 * 20)
    assert 16 * 40 * 20 == gateway.count(FINISHED)
    assert 16 * 40 * 20 == gateway.count("mttp_episodes_return_count")
    assert 0 == gateway.own_count("otelcol_deltatocumulative_datapoints", error="delta.ErrOutOfOrder")


def test_a_span_that_is_not_understood_stops_nothing(running: Any, tmp_path: Path) -> None:
    """
    Numbers of another program that are text: it arrives, is not counted, and so are all episodes after it.
    """
    gateway = counting(running, "gateway-lb.yaml", path=tmp_path / "received.jsonl")
    agent = running("agent.yaml", GATEWAY=gateway.grpc_address)
    for key in (a.TOKEN_COUNT, a.EPISODE_RETURN, a.REWARD_VALUE):
        for _ in range(5):
            foreign(agent.http_address, {key: "many", a.EPISODE_STEP_COUNT: 1})
    assert eventually(lambda: len(named(tmp_path / "received.jsonl", "reward foreign")) == 15)
    with mttp.configure(agent.http_address):
        play(50)
    assert eventually(lambda: len(named(tmp_path / "received.jsonl", "episode toy")) == 50)

    assert {1} == set(named(tmp_path / "received.jsonl", "reward foreign").values())
    assert {1} == set(named(tmp_path / "received.jsonl", "episode toy").values())
    assert eventually(lambda: gateway.count(FINISHED, mttp_env_id="toy") == 50)
    assert any("Error processing data" in line for line in gateway.complaints())


def test_a_sampler_that_is_away_makes_nothing_count_twice(running: Any, tmp_path: Path) -> None:
    """
    The gateway keeps what it can't send, refuses nothing meanwhile, and sends it in the end.
    """
    port = free_port()
    gateway = running("gateway-lb.yaml", over=balanced(f"127.0.0.1:{port}"))
    agent = running("agent.yaml", GATEWAY=gateway.grpc_address)
    with mttp.configure(agent.http_address):
        play(100)
    assert eventually(lambda: gateway.count(FINISHED) == 100)
    assert eventually(lambda: gateway.log().count("Will retry the request") > 1)
    during = gateway.count(FINISHED)
    running(over=sink(tmp_path / "received.jsonl"), grpc=port)
    arrived(tmp_path / "received.jsonl", 100)

    assert 100 == during == gateway.count(FINISHED)
    assert 0 == agent.own_count("otelcol_exporter_send_failed_spans")


def test_an_agent_that_is_killed_keeps_what_it_accepted(running: Any, tmp_path: Path) -> None:
    """
    With the gateway away: after its restart all spans are sent.
    """
    port = free_port()
    agent = running("agent.yaml", GATEWAY=f"127.0.0.1:{port}")
    with mttp.configure(agent.http_address) as session:
        play(100)
    agent.kill()
    agent.start()
    running(over=sink(tmp_path / "received.jsonl"), grpc=port)

    assert eventually(lambda: len(set(spans(tmp_path / "received.jsonl"))) >= session.stats.recorded)
    assert 100 == len(arrived(tmp_path / "received.jsonl", 100))


def test_each_episode_counts_once_by_its_kind_whoever_sends_metrics(running: Any) -> None:
    """
    Evaluation and training apart; training that has a meter provider adds what is not made of spans.
    """
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    gateway = counting(running, "gateway-lb.yaml")
    agent = running("agent.yaml", GATEWAY=gateway.grpc_address)
    exporter = OTLPMetricExporter(f"http://{agent.grpc_address}", insecure=True)
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
    for kind, count in (("train", 20), ("eval", 5)):
        with mttp.configure(agent.http_address, kind=kind, meter_provider=provider):
            play(count)
            mttp.update(0, loss=0.5)
    provider.shutdown()

    assert eventually(lambda: gateway.count(FINISHED) == 25 and gateway.count("mttp_updates_loss") > 0)
    for kind, count in (("train", 20), ("eval", 5)):
        assert count == gateway.count(FINISHED, mttp_run_kind=kind)
        assert count == gateway.count("mttp_episodes_return_count", mttp_run_kind=kind)
        assert 6 * count == gateway.count("mttp_tokens_generated_total", mttp_run_kind=kind)


def test_failed_and_unusual_episodes_are_kept_whole(running: Any, tmp_path: Path) -> None:
    """
    Of the others a share; the run, its updates and annotations always.
    """
    quick = {"decision_wait": "20s", "decision_wait_after_root_received": "1s"}
    store = running(over=sink(tmp_path / "kept.jsonl"))
    sampler = running(
        "gateway-sampler.yaml", over={"processors": {"tail_sampling": quick}}, TEMPO=store.grpc_address
    )
    with mttp.configure(["file://recorded.jsonl", f"grpc://{sampler.grpc_address}"], content=True):
        for _ in range(400):
            with mttp.episode(env="usual") as usual:
                usual.reward(1.0)
                usual.end(outcome="success")
        for env in UNUSUAL:
            unusual(env)
        mttp.score(usual, 0.5, grader="judge")
        mttp.update(0, loss=0.5)
    expected = {episode.env: episode for episode in mttp.read("recorded.jsonl").episodes}

    wanted = {*(f"episode {env}" for env in UNUSUAL), "run", "update", "annotate"}
    eventually(lambda: wanted <= {name for _, name in spans(tmp_path / "kept.jsonl")})
    sampler.stop()
    store.stop()
    kept = mttp.read(tmp_path / "kept.jsonl")

    for env in UNUSUAL:
        (episode,) = (episode for episode in kept.episodes if episode.env == env)
        assert_same(expected[env], episode)
    assert 0 < sum(episode.env == "usual" for episode in kept.episodes) < 100
    assert (1, 1, 1) == (len(kept.runs), len(kept.updates), len(kept.annotations))


@pytest.mark.parametrize("sampling", [None, 0.5])
def test_a_sampler_states_shares_by_which_the_run_is_estimated(
    running: Any, tmp_path: Path, sampling: float | None
) -> None:
    """
    All failures stand for themselves, and the others for those like them, also behind mttp's own sampling.
    """
    quick = {"decision_wait": "20s", "decision_wait_after_root_received": "1s"}
    store = running(over=sink(tmp_path / "kept.jsonl"))
    sampler = running(
        "gateway-sampler.yaml",
        over={"processors": {"tail_sampling": quick}},
        TEMPO=store.grpc_address,
        gates="processor.tailsamplingprocessor.usetracestate",
    )
    with mttp.configure(f"grpc://{sampler.grpc_address}", run_id="r", kind="eval", sampling=sampling):
        for number in range(2000):
            with mttp.episode(env="toy", group=f"g{number // 2}") as episode:
                episode.reward(float(number % 10 > 0))
                episode.end(outcome="success" if number % 10 else "failure")
    eventually(lambda: "run" in {name for _, name in spans(tmp_path / "kept.jsonl")})
    sampler.stop()
    store.stop()
    kept = mttp.read(tmp_path / "kept.jsonl")
    weighted = mttp.summarize(tmp_path / "kept.jsonl").weighting(is_sample=True)

    shares = {(episode.outcome, round(episode.sampling_share or 0, 6)) for episode in kept}
    assert {("failure", sampling or 1.0), ("success", 0.05)} == shares
    assert weighted is not None
    assert weighted.success is not None
    assert len(kept) == weighted.success.count < 1000
    assert 1000 < weighted.success.stands_for < 3000
    assert 0.8 < weighted.success.mean < 0.96
    members = Counter(episode.group for episode in kept if episode.outcome == "success")
    assert sampling is None or {2} == {count for group, count in members.items() if int(str(group)[1:]) % 5}
    assert sum(episode.reward.value or 0 for episode in kept) / len(kept) < 0.75


UNUSUAL = ("failure", "error", "aborted", "nan", "nan-step", "nan-component", "extreme", "keep", "tool")


def unusual(env: str) -> None:
    """Record the unusual episode of this name."""
    about = {"metadata": {"keep": True}} if env == "keep" else {}
    try:
        with mttp.episode(env=env, **about) as episode:
            with episode.step() as step:
                step.reward(float("nan") if env == "nan-step" else 1.0)
                if env == "tool":
                    try:
                        with step.tool_call("search"):
                            raise ValueError("no such page")
                    except ValueError:
                        pass
            if env.startswith("nan"):
                components = {"format": float("nan")} if env == "nan-component" else None
                episode.reward(float("nan") if env == "nan" else 1.0, components=components)
            if env == "extreme":
                episode.reward(-5000.0)
            if env == "error":
                raise RuntimeError("the environment broke")
            if env == "aborted":
                raise KeyboardInterrupt
            episode.end(outcome="failure" if env == "failure" else "success")
    except (RuntimeError, KeyboardInterrupt):
        pass


def test_recordings_wait_for_a_gateway_that_is_away(running: Any, tmp_path: Path) -> None:
    """
    A queue that is full holds up the reading of files, and nothing is lost.
    """
    port = free_port()
    folder = Path("recordings")
    for number in range(3):
        with mttp.configure(f"file://{folder}/{number}.jsonl"):
            for _ in range(200):
                with mttp.episode(env="toy") as episode, episode.step() as step:
                    step.observation("x" * 10_000)
    recorded = {span for path in folder.glob("*.jsonl") for span in spans(path)}
    small = {"queue_size": 2_000_000, "batch": {"max_size": 1_000_000}}  # a third of what there is to send
    replay = running(
        "replay.yaml",
        over={"exporters": {"otlp_grpc": {"sending_queue": small}}},
        GATEWAY=f"127.0.0.1:{port}",
        RECORDINGS=str(folder.absolute()),
    )
    assert eventually(lambda: "Will retry the request" in replay.log())
    running(over=sink(tmp_path / "received.jsonl"), grpc=port)

    assert eventually(lambda: recorded <= set(spans(tmp_path / "received.jsonl")))
    assert 600 == len(arrived(tmp_path / "received.jsonl", 600).episodes)


def test_a_topic_has_everything_and_is_read_back(running: Any, tmp_path: Path) -> None:
    """
    By the agent and Kafka itself into files: each episode is the one that was recorded, its long arrays too.
    """
    if not KAFKA:
        pytest.skip("KAFKA=a folder with Kafka's jars, as .ci/backends copies them")
    with broker(tmp_path / "broker") as brokers:
        writer = running("kafka.yaml", BROKERS=brokers)
        gateway = running(over=nowhere())
        agent = running(
            "agent.yaml",
            "kafka/agent.yaml",
            GATEWAY=gateway.grpc_address,
            KAFKA_GATEWAY=writer.grpc_address,
        )
        sent = mttp.Route(agent.http_address, profile="all", content=True, token_ids=True)
        with mttp.configure(["file://recorded.jsonl", sent], config={"lr": 3e-4}):
            play(20)
            with mttp.episode(env="long") as episode, episode.step() as step:
                step.tokens(ids=list(range(200_000)), logprobs=[-0.5] * 200_000)
                step.observation("日本" * 1_000_000)
        expected = mttp.read("recorded.jsonl")
        running("kafka/read.yaml", BROKERS=brokers, GROUP="training-7", DIRECTORY=str(tmp_path))
        found = arrived(tmp_path / "spans.jsonl", len(expected))

    for kind in ("episodes", "runs"):
        assert_same(getattr(expected, kind), getattr(found, kind))


def test_the_table_is_filled_with_every_span_and_read_back(running: Any) -> None:
    """
    By the Collector's own exporter, into ClickHouse's engine; numbers in columns are among them.
    """
    pytest.importorskip("chdb", reason="pip install chdb, as .ci/backends does")
    server = FilledByCollector()
    with server.serve() as address:
        place = urlsplit(address).netloc
        quick = {"compress": "none", "sending_queue": {"batch": {"flush_timeout": "1s", "min_size": 1}}}
        table = running(
            "clickhouse/collector.yaml",
            over={"exporters": {"clickhouse": quick}},
            CLICKHOUSE=f"http://{place}",
        )
        with mttp.configure(["file://recorded.jsonl", f"grpc://{table.grpc_address}"], content=False):
            play(20)
            with mttp.episode(env="long") as episode:
                for number in range(1500):
                    with episode.step() as step:
                        step.reward(number / 3)
        expected = mttp.read("recorded.jsonl")
        ended = "SELECT count() FROM mttp.spans WHERE SpanName = 'run'"
        assert eventually(lambda: server.ask(ended) == [["1"]])
        found = mttp.read(address)
        rows = server.ask("SELECT count() = uniqExact(SpanId), countIf(is_episode) FROM mttp.spans")

    assert [["1", str(len(expected))]] == rows
    assert_same(expected.episodes, found.episodes)

"""Prometheus itself, where it can be had: it knows the metrics of dashboards and alerts, and answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import grpc
import pytest
import yaml
from collector_config.test_collector_config import ALERTS, IN_PROMETHEUS, promql, rules
from collectors import PROGRAM, Collector, free_port, nowhere, send
from opentelemetry.sdk.metrics import MeterProvider
from stores import serving

import mttp

pytestmark = pytest.mark.timeout(300)
EXPORTED = "opentelemetry-exporter-prometheus, as .ci/backends does"


@pytest.fixture
def exporter() -> Iterator[Any]:
    """The exporter for Prometheus, and what it has of a small run."""
    found = pytest.importorskip("opentelemetry.exporter.prometheus", reason=f"pip install {EXPORTED}")
    reader = found.PrometheusMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with (
        serving(lambda _: (400, "text/plain", b"no")) as place,
        mttp.configure(["memory://", f"http://{place}"], meter_provider=provider),
    ):
        play()
        yield reader
    provider.shutdown()


def play() -> None:
    """Some episodes, one of them with a reward that is no number, and an update."""
    spec = mttp.model.Spec(name="math", version="1.2.0")
    for number in range(8):
        with mttp.episode(env="toy") as episode:
            with episode.step() as step:
                step.tokens(ids=[1, 2, 3])
            value = number / 8 if number else float("nan")
            episode.reward(value, components={"correct": number / 8}, spec=spec)
            episode.end(outcome="success" if number % 2 else "failure")
    mttp.update(0, policy="tiny", loss=0.5, kl=0.01, entropy=0.7)


def test_metrics_are_called_what_the_dashboards_call_them(exporter: Any) -> None:
    """
    By the exporter for Prometheus, from a run.
    """
    import prometheus_client

    shown = prometheus_client.generate_latest().decode()
    names = {
        line.partition("{")[0].partition(" ")[0] for line in shown.splitlines() if line.startswith("mttp_")
    }
    names = {name for name in names if not name.endswith("_created")}

    assert set() == names - set(IN_PROMETHEUS)
    assert len(names) > 20


def asked(port: int, expr: str) -> dict[str, Any]:
    """What Prometheus answers."""
    query = urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        return dict(json.load(answer))


def test_a_real_prometheus_scrapes_and_answers(exporter: Any, tmp_path: Path) -> None:
    """
    Each query of the dashboards has an answer, and each metric of the alerts, of Collectors where one is.
    """
    program = os.environ.get("PROMETHEUS")
    if not program:
        pytest.skip("PROMETHEUS=/usr/bin/prometheus, as .ci/backends says")
    import prometheus_client

    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    with ExitStack() as stack:
        collectors = troubled(stack, tmp_path) if PROGRAM else []
        places = [f"127.0.0.1:{port}" for port in (server.server_port, *collectors)]
        config = tmp_path / "prometheus.yaml"
        scraped = [{"job_name": "mttp", "scrape_interval": "1s", "static_configs": [{"targets": places}]}]
        config.write_text(yaml.safe_dump({"scrape_configs": scraped, "rule_files": [str(ALERTS)]}))
        port = free_port()
        listen = f"--web.listen-address=127.0.0.1:{port}"
        running = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", listen],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            end = monotonic() + 120
            while not scraped_twice(port, len(places)) and monotonic() < end:
                play()
                sleep(0.5)
            answers = {expr: asked(port, expr) for _, expr in promql()}
            there = {name for name in ruled() if asked(port, name)["data"]["result"]}
        finally:
            running.terminate()
            running.wait(30)
            server.shutdown()
            server.server_close()
            thread.join()

    assert {"success"} == {answer["status"] for answer in answers.values()}
    empty = [expr for expr, answer in answers.items() if not answer["data"]["result"]]
    assert [] == [expr for expr in empty if expr not in rules().values()]
    assert {name for name in ruled() if PROGRAM or name.startswith("mttp_")} == there


def ruled() -> set[str]:
    """The metrics that the alerts ask for."""
    return {
        name for expr in rules().values() for name in re.findall(r"\b(?:mttp|otelcol)_\w+", expr)
    } - LABELS


LABELS = {"mttp_transport_name", "mttp_gap_reason", "mttp_spec_name", "mttp_env_id", "mttp_run_kind"}


def troubled(stack: ExitStack, folder: Path) -> list[int]:
    """Start a gateway, and agents that give up what they can't send or keep; where each tells of itself."""
    store = stack.enter_context(Collector(folder / "store", over=nowhere()))
    stores = {"jaeger": store.grpc_address, "tempo": store.grpc_address}
    over = {"exporters": {f"otlp_grpc/{name}": {"endpoint": place} for name, place in stores.items()}}
    over["exporters"]["file"] = {"path": str(folder / "received.jsonl")}
    gateway = stack.enter_context(Collector(folder / "gateway", "dev/collector.yaml", over=over))
    impatient = {"retry_on_failure": {"enabled": False}}
    narrow = {"sending_queue": {"queue_size": 1, "block_on_overflow": False, "batch": None, "storage": None}}
    agents = [
        stack.enter_context(Collector(folder / name, "agent.yaml", over={"exporters": {"otlp_grpc": over}}))
        for name, over in (("impatient", impatient), ("narrow", narrow))
    ]
    for collector in (gateway, *agents):
        with suppress(grpc.RpcError):  # what can't be kept is refused
            send(collector.grpc_address, 1, 3)
    return [gateway.own, *(agent.own for agent in agents)]


def scraped_twice(port: int, places: int) -> bool:
    """Whether a rate can be told, and every place was asked."""
    try:
        rates = asked(port, "rate(mttp_episodes_finished_total[5m]) > 0")
        up = asked(port, "sum(up)")["data"]["result"]
    except OSError:
        return False
    return bool(rates["data"]["result"]) and [str(places)] == [sample["value"][1] for sample in up]


RETURN = 'mttp_episodes_return_bucket{mttp_env_id="toy", mttp_run_kind="train", le="%s"}'
HEALTHY = {
    'mttp_exporter_spans_lost_total{mttp_transport_name="http", mttp_gap_reason="http_400"}': "7+0x90",
    'mttp_exporter_queue_size_bytes{mttp_transport_name="http"}': "1000+0x90",
    'otelcol_receiver_refused_spans{instance="a", receiver="otlp"}': "3+0x90",
    'otelcol_exporter_send_failed_spans{instance="a", exporter="otlp_grpc"}': "0+0x90",
    'otelcol_exporter_queue_size{instance="a", exporter="otlp_grpc"}': "100+0x90",
    'otelcol_exporter_queue_capacity{instance="a", exporter="otlp_grpc"}': "1000+0x90",
    'otelcol_deltatocumulative_datapoints{instance="a"}': "0+60x90",
    'mttp_rewards_value_bucket{mttp_spec_name="s", le="+Inf"}': "0+600x90",
    'mttp_rewards_invalid_total{mttp_spec_name="s"}': "0+1x90",
    'mttp_episodes_finished_total{mttp_env_id="toy", mttp_run_kind="train"}': "0+600x90",
    **{RETURN % bound: values for bound, values in (("0", "0+60x90"), ("0.5", "0+120x90"))},
    **{RETURN % bound: "0+600x90" for bound in ("1", "+Inf")},
}
"""What training and Collectors say of themselves each minute for an hour and a half, in which all is well."""
TROUBLE = {
    "SpansLost": {
        'mttp_exporter_spans_lost_total{mttp_transport_name="http", mttp_gap_reason="http_413"}': "_x84 5+0x5"
    },
    "SpansWaitInTraining": {'mttp_exporter_queue_size_bytes{mttp_transport_name="http"}': "50000000+0x90"},
    "CollectorRefusesSpans": {'otelcol_receiver_refused_spans{instance="a", receiver="otlp"}': "3+9x90"},
    "CollectorLosesSpans": {
        'otelcol_exporter_enqueue_failed_spans{instance="a", exporter="kafka"}': "_x84 1+0x5"
    },
    "CollectorQueueFills": {'otelcol_exporter_queue_size{instance="a", exporter="otlp_grpc"}': "0+10x90"},
    "MetricsMiscount": {
        'otelcol_deltatocumulative_datapoints{instance="a", error="delta.ErrOutOfOrder"}': "_x84 1+0x5"
    },
    "GradersFail": {
        'mttp_rewards_value_bucket{mttp_spec_name="s", le="+Inf"}': "_x90",
        'mttp_rewards_invalid_total{mttp_spec_name="s"}': "0+600x90",
    },
    "NoEpisodes": {
        'mttp_episodes_finished_total{mttp_env_id="toy", mttp_run_kind="train"}': "0+600x60 36000+0x29"
    },
    "ReturnCollapses": {
        RETURN % bound: values
        for bound, values in (("0", "0+60x50 3000+590x39"), ("0.5", "0+120x50 6000+595x39"))
    },
}
"""What differs for each alert."""


def test_an_alert_fires_when_something_is_wrong_and_only_then(tmp_path: Path) -> None:
    """
    By Prometheus' own program for tests of rules.
    """
    program = os.environ.get("PROMETHEUS")
    if not program:
        pytest.skip("PROMETHEUS=/usr/bin/prometheus, as .ci/backends says")
    cases = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": FIRING, "eval_time": "90m", "exp_samples": samples}],
        }
        for series, samples in [
            (HEALTHY, []),
            *((HEALTHY | series, [fired(name)]) for name, series in TROUBLE.items()),
        ]
    ]
    tests = tmp_path / "tests.yaml"
    tests.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases})
    )
    done = subprocess.run(
        [Path(program).with_name("promtool"), "test", "rules", tests], capture_output=True, text=True
    )

    assert "SUCCESS" in done.stdout, done.stderr + done.stdout
    assert set(TROUBLE) == {name for name in rules() if ":" not in name}


FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def fired(name: str) -> dict[str, Any]:
    """Return the answer for one alert that fires."""
    return {"labels": f'{{alertname="{name}"}}', "value": 1}

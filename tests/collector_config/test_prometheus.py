"""Prometheus itself, where it can be had: metrics have the names that the dashboards ask for, and answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from collector_config.test_collector_config import IN_PROMETHEUS, promql
from opentelemetry.sdk.metrics import MeterProvider

import mttp

pytestmark = pytest.mark.timeout(300)
EXPORTED = "opentelemetry-exporter-prometheus, as .ci/backends does"


@pytest.fixture
def exporter() -> Iterator[Any]:
    """The exporter for Prometheus, and what it has of a small run."""
    found = pytest.importorskip("opentelemetry.exporter.prometheus", reason=f"pip install {EXPORTED}")
    reader = found.PrometheusMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with mttp.configure("memory://", meter_provider=provider):
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


def free_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def asked(port: int, expr: str) -> dict[str, Any]:
    """What Prometheus answers."""
    query = urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        return dict(json.load(answer))


def test_a_real_prometheus_scrapes_and_answers(exporter: Any, tmp_path: Path) -> None:
    """
    Each query of the dashboards succeeds, and those about what the run did have an answer.
    """
    program = os.environ.get("PROMETHEUS")
    if not program:
        pytest.skip("PROMETHEUS=/usr/bin/prometheus, as .ci/backends says")
    import prometheus_client

    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    config = tmp_path / "prometheus.yaml"
    config.write_text(
        "scrape_configs: [{job_name: mttp, scrape_interval: 1s, static_configs: "
        f"[{{targets: ['127.0.0.1:{server.server_port}']}}]}}]"
    )
    port = free_port()
    listen = f"--web.listen-address=127.0.0.1:{port}"
    running = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", listen],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = monotonic() + 120
        while not scraped_twice(port) and monotonic() < end:
            play()
            sleep(0.5)
        answers = {expr: asked(port, expr) for _, expr in promql()}
    finally:
        running.terminate()
        running.wait(30)
        server.shutdown()
        server.server_close()
        thread.join()

    assert {"success"} == {answer["status"] for answer in answers.values()}
    empty = [expr for expr, answer in answers.items() if not answer["data"]["result"]]
    assert [] == [expr for expr in empty if "lost" not in expr]


def scraped_twice(port: int) -> bool:
    """Whether a rate can be told."""
    try:
        found = asked(port, "rate(mttp_episodes_finished_total[5m]) > 0")
    except OSError:
        return False
    return bool(found["data"]["result"])

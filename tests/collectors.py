"""Real Collectors for tests: the shipped configurations, on free ports and in folders of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mttp.semconv import attributes as a

HOME = Path(__file__).parents[1] / "collector-config"
PROGRAM = os.environ.get("OTELCOL", "")
"""A Collector with the components of `.ci/collector`; empty where there is none."""
KAFKA = os.environ.get("KAFKA", "")
"""A folder with Kafka's jars; empty where there is none."""
VARIABLES = {
    **dict.fromkeys(("GATEWAY", "CLICKHOUSE_GATEWAY", "KAFKA_GATEWAY", "TEMPO", "BROKERS"), "127.0.0.1:1"),
    "SAMPLERS": "localhost",
    "RECORDINGS": "/tmp",
    "DIRECTORY": "/tmp",
    "GROUP": "tests",
    "CLICKHOUSE": "tcp://127.0.0.1:1",
    "CLICKHOUSE_PASSWORD": "",
}
"""A value for each variable that a configuration names."""


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers as the Collector merges them: mappings by key, else the last one counts."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            result[key] = (
                merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
            )
    return result


def jvm(*arguments: str | Path) -> list[str]:
    """Return the command that runs a class of Kafka's."""
    return ["java", "-Xmx512m", "-cp", f"{KAFKA}/*", *map(str, arguments)]


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """The address of a Kafka that runs while the block lasts; it takes messages of 64 MiB."""
    port, controller = free_port(), free_port()
    folder.mkdir()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": folder / "data",
        "num.partitions": 3,
        "message.max.bytes": 64 * 2**20,
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    cluster = "AAAAAAAAAAAAAAAAAAAAAQ"
    subprocess.run(
        jvm("kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties),
        check=True,
        capture_output=True,
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(jvm("kafka.Kafka", properties), stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


def free_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def sink(path: Path, *, mebibytes: int = 64) -> dict[str, Any]:
    """Return a configuration that writes all traces that it receives to a file."""
    receiver = {
        "grpc": {"max_recv_msg_size_mib": mebibytes},
        "http": {"max_request_body_size": mebibytes * 2**20},
    }
    return {
        "receivers": {"otlp": {"protocols": receiver}},
        "exporters": {"file": {"path": str(path)}},
        "service": {"pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}}},
    }


def nowhere() -> dict[str, Any]:
    """Return a configuration that takes all traces and keeps none."""
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"max_recv_msg_size_mib": 64}}}},
        "exporters": {"nop": {}},
        "service": {"pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["nop"]}}},
    }


class Collector:
    """A Collector that runs while the block lasts; its ports and folders are its own."""

    def __init__(
        self,
        folder: Path,
        *configurations: str,
        over: Mapping[str, Any] | None = None,
        grpc: int = 0,
        gates: str = "",
        **variables: str,
    ) -> None:
        """Run these files, and `over` what they say, with feature gates; it listens at `grpc`."""
        self.folder = folder
        self.grpc = grpc or free_port()
        self.http, self.prometheus, self.own = (free_port() for _ in range(3))
        self._gates = [f"--feature-gates={gates}"] if gates else []
        self._log = folder / "log"
        self._environment = {**os.environ, **VARIABLES, **variables}
        folder.mkdir(exist_ok=True)
        shipped = [yaml.safe_load((HOME / name).read_text()) for name in configurations]
        config = merged(*shipped, over or {}, self._places(merged(*shipped, over or {})))
        self._config = folder / "config.yaml"
        self._config.write_text(json.dumps(config))

    def __enter__(self) -> Collector:
        """Start it, and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it at once; `stop` lets it send what it has."""
        self.kill()

    @property
    def grpc_address(self) -> str:
        """Where it takes OTLP over gRPC, without the scheme."""
        return f"127.0.0.1:{self.grpc}"

    @property
    def http_address(self) -> str:
        """Where it takes OTLP over HTTP."""
        return f"http://127.0.0.1:{self.http}"

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._log.write_text("")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "--config", str(self._config), *self._gates],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        end = monotonic() + 60
        while "Everything is ready" not in self.log():
            if self._process.poll() is not None or monotonic() > end:
                self.kill()
                raise AssertionError(self.log()[-3000:])
            sleep(0.05)

    def stop(self) -> None:
        """Stop it as a service manager does, and wait until it has sent what it has."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def kill(self) -> None:
        """Stop it at once."""
        self._process.kill()
        self._process.wait(30)

    def log(self) -> str:
        """Return what it has logged since its start."""
        return self._log.read_text()

    def complaints(self) -> list[str]:
        """Return the warnings and errors of its log."""
        return [line for line in self.log().splitlines() if "\twarn\t" in line or "\terror\t" in line]

    def count(self, metric: str, **labels: str) -> float:
        """Return the sum of the samples of a metric that it makes of spans."""
        return _sum(self.prometheus, metric, labels)

    def own_count(self, metric: str, **labels: str) -> float:
        """Return the sum of the samples of a metric about itself."""
        return _sum(self.own, metric, labels)

    def _places(self, config: Mapping[str, Any]) -> dict[str, Any]:
        over: dict[str, Any] = {
            "service": {"telemetry": {"metrics": {"readers": [_reader(self.own)], "level": "detailed"}}}
        }
        for kind, places in (
            ("receivers", {"otlp": {"protocols": _endpoints(grpc=self.grpc, http=self.http)}}),
            ("exporters", {"prometheus": {"endpoint": f"127.0.0.1:{self.prometheus}"}}),
            (
                "extensions",
                {
                    "health_check": {"endpoint": f"127.0.0.1:{free_port()}"},
                    "file_storage": {"directory": str(self.folder / "queue")},
                },
            ),
        ):
            over[kind] = {name: place for name, place in places.items() if name in config.get(kind, {})}
        return over


def _endpoints(**ports: int) -> dict[str, Any]:
    return {protocol: {"endpoint": f"127.0.0.1:{port}"} for protocol, port in ports.items()}


def _reader(port: int) -> dict[str, Any]:
    return {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}}


def _sum(port: int, metric: str, labels: Mapping[str, str]) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines: Iterable[str] = answer.read().decode().splitlines()
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.partition("{")[0].partition(" ")[0] == metric and all(label in line for label in wanted)
    )


def spans(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the span id and the name of each span of a file exporter's lines, counted without mttp."""
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]  # the last may be half written
    for line in lines:
        for resource in json.loads(line).get("resourceSpans", []):
            for scope in resource.get("scopeSpans", []):
                for span in scope.get("spans", []):
                    yield span["spanId"], span["name"]


def finished(count: int) -> ExportTraceServiceRequest:
    """Return a request with so many finished episodes."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for _ in range(count):
        span = scope.spans.add(trace_id=os.urandom(16), span_id=os.urandom(8), name="episode toy")
        span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 10**9
        for key, value in ((a.EPISODE_STEP_COUNT, 10), (a.EPISODE_LENGTH, 10)):
            span.attributes.add(key=key).value.int_value = value
        span.attributes.add(key=a.EPISODE_RETURN).value.double_value = 0.5
        span.attributes.add(key=a.EPISODE_STATUS).value.string_value = "completed"
    return request


def send(address: str, requests: int, count: int) -> None:
    """Send requests one after the other, of so many finished episodes each."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        export = channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            request_serializer=ExportTraceServiceRequest.SerializeToString,
        )
        for _ in range(requests):
            export(finished(count), timeout=60)

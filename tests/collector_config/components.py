"""The Collector's components that our configurations use, with the keys of theirs that we know."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _duration(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"(\d+(ms|s|m|h))+|0s", value):
        raise ValueError(f"{value!r} is no duration such as 10s")
    return value


Duration = Annotated[str, BeforeValidator(_duration)]


class Known(BaseModel):
    """Something of which every key is known."""

    model_config = ConfigDict(extra="forbid")


class Tls(Known):
    insecure: bool = False


class Server(Known):
    endpoint: str
    max_recv_msg_size_mib: int | None = None
    max_request_body_size: int | None = None


class Protocols(Known):
    grpc: Server
    http: Server | None = None


class OtlpReceiver(Known):
    protocols: Protocols


class OtlpJsonFileReceiver(Known):
    include: list[str]
    start_at: Literal["beginning", "end"]
    max_log_size: str
    storage: str | None = None


class ReadTopics(Known):
    topics: list[str]
    encoding: Literal["otlp_proto", "otlp_json"]


class Marking(Known):
    after: bool = False
    on_error: bool = False


class KafkaReceiver(Known):
    brokers: list[str]
    group_id: str
    initial_offset: Literal["latest", "earliest"] = "latest"
    traces: ReadTopics
    message_marking: Marking = Marking()


class BatchProcessor(Known):
    timeout: Duration


class MemoryLimiter(Known):
    check_interval: Duration
    limit_mib: int | None = None
    spike_limit_mib: int | None = None
    limit_percentage: int | None = None
    spike_limit_percentage: int | None = None


class FilteredMetrics(Known):
    metric: list[str]


class Filter(Known):
    error_mode: Literal["ignore", "silent", "propagate"] = "propagate"
    metrics: FilteredMetrics


class Batch(Known):
    flush_timeout: Duration = "200ms"
    min_size: int | None = None
    max_size: int | None = None


class Queue(Known):
    enabled: bool = True
    storage: str | None = None
    sizer: Literal["requests", "items", "bytes"] = "requests"
    queue_size: int = 1000
    block_on_overflow: bool = False
    batch: Batch | None = None

    @model_validator(mode="after")
    def batches_fit(self) -> Queue:
        """The exporter refuses to start where a batch is larger than its queue."""
        assert self.batch is None or (self.batch.max_size or 0) <= self.queue_size
        assert self.batch is None or (self.batch.min_size or 0) <= (self.batch.max_size or self.queue_size)
        return self


class Retry(Known):
    enabled: bool = True
    initial_interval: Duration = "5s"
    randomization_factor: float = 0.5
    multiplier: float = 1.5
    max_interval: Duration = "30s"
    max_elapsed_time: Duration = "300s"


class OtlpGrpcExporter(Known):
    endpoint: str
    compression: Literal["gzip", "zstd", "snappy", "none"] = "gzip"
    tls: Tls = Tls()
    retry_on_failure: Retry = Retry()
    sending_queue: Queue = Queue()


class Rotation(Known):
    max_megabytes: int
    max_backups: int


class FileExporter(Known):
    path: str
    rotation: Rotation | None = None
    append: bool = False


class ConstantLabels(Known):
    included: list[str]


class PrometheusExporter(Known):
    endpoint: str
    metric_expiration: Duration
    resource_constant_labels: ConstantLabels


class BalancedOtlp(Known):
    tls: Tls
    retry_on_failure: Retry
    sending_queue: Queue


class BalancedProtocol(Known):
    otlp: BalancedOtlp


class Dns(Known):
    hostname: str
    port: str
    interval: Duration


class Resolver(Known):
    dns: Dns


class BalancingRetry(Retry):
    """Of which nothing has a default but 0, by which it would ask again without a pause."""

    initial_interval: Duration
    randomization_factor: float
    multiplier: float
    max_interval: Duration
    max_elapsed_time: Duration


class LoadBalancingExporter(Known):
    routing_key: Literal["traceID", "service", "attributes", "streamID"]
    protocol: BalancedProtocol
    retry_on_failure: BalancingRetry
    sending_queue: Queue
    resolver: Resolver


class KafkaTraces(Known):
    topic: str
    encoding: Literal["otlp_proto", "otlp_json"]


class Producer(Known):
    max_message_bytes: int
    required_acks: Literal[-1, 0, 1]
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]


class KafkaExporter(Known):
    brokers: list[str]
    traces: KafkaTraces
    partition_traces_by_id: bool
    producer: Producer
    retry_on_failure: Retry
    sending_queue: Queue


class ClickhouseExporter(Known):
    endpoint: str
    database: str
    username: str
    password: str
    traces_table_name: str
    create_schema: bool
    async_insert: bool
    timeout: Duration
    retry_on_failure: Retry
    sending_queue: Queue


class StatusCode(Known):
    status_codes: list[Literal["ERROR", "OK", "UNSET"]]


class StringAttribute(Known):
    key: str
    values: list[str]


class NumericAttribute(Known):
    key: str
    min_value: int
    max_value: int


class BooleanAttribute(Known):
    key: str
    value: bool


class OttlCondition(Known):
    error_mode: Literal["ignore", "propagate"]
    span: list[str]


class Probabilistic(Known):
    sampling_percentage: float


class Policy(Known):
    name: str
    type: str
    status_code: StatusCode | None = None
    string_attribute: StringAttribute | None = None
    numeric_attribute: NumericAttribute | None = None
    boolean_attribute: BooleanAttribute | None = None
    ottl_condition: OttlCondition | None = None
    probabilistic: Probabilistic | None = None

    @model_validator(mode="after")
    def says_what_its_type_takes(self) -> Policy:
        """A policy has the one part that its type names."""
        parts = self.model_dump(exclude_none=True).keys() - {"name", "type"}
        assert parts == {self.type}, f"{self.name} is of type {self.type} and has {parts}"
        return self


class DecisionCache(Known):
    sampled_cache_size: int
    non_sampled_cache_size: int


class TailSampling(Known):
    decision_wait: Duration
    decision_wait_after_root_received: Duration
    num_traces: int
    maximum_trace_size_bytes: int
    decision_cache: DecisionCache
    policies: list[Policy]


class MetricAttribute(Known):
    key: str
    optional: bool = False


class Histogram(Known):
    buckets: list[float]
    value: str


class Sum(Known):
    value: str
    monotonic: Literal[True]  # Prometheus is shown no sums of one request that may fall


class SpanMetric(Known):
    name: str
    description: str
    unit: str
    include_resource_attributes: list[MetricAttribute] = Field(min_length=1)  # otherwise all: one series each
    conditions: list[str]
    attributes: list[MetricAttribute] = []
    histogram: Histogram | None = None
    sum: Sum | None = None


class DeltaToCumulative(Known):
    max_stale: Duration


class SignalToMetrics(Known):
    error_mode: Literal["ignore", "silent", "propagate"] = "propagate"
    spans: list[SpanMetric]


class Forward(Known):
    """It takes no keys."""


class HealthCheck(Known):
    endpoint: str


class FileStorage(Known):
    directory: str
    create_directory: bool


KINDS: dict[str, dict[str, type[Known]]] = {
    "receivers": {"otlp": OtlpReceiver, "otlp_json_file": OtlpJsonFileReceiver, "kafka": KafkaReceiver},
    "processors": {
        "batch": BatchProcessor,
        "memory_limiter": MemoryLimiter,
        "tail_sampling": TailSampling,
        "filter": Filter,
        "delta_to_cumulative": DeltaToCumulative,
    },
    "connectors": {"forward": Forward, "signal_to_metrics": SignalToMetrics},
    "exporters": {
        "otlp_grpc": OtlpGrpcExporter,
        "load_balancing": LoadBalancingExporter,
        "file": FileExporter,
        "prometheus": PrometheusExporter,
        "kafka": KafkaExporter,
        "clickhouse": ClickhouseExporter,
    },
    "extensions": {"health_check": HealthCheck, "file_storage": FileStorage},
}
"""Each kind of component, and those of it that are known, by their current names."""


class Pipeline(Known):
    receivers: list[str] = Field(min_length=1)
    processors: list[str] = []
    exporters: list[str] = Field(min_length=1)


class Address(Known):
    host: str
    port: int


class OwnExporter(Known):
    prometheus: Address


class Pull(Known):
    exporter: OwnExporter


class Reader(Known):
    pull: Pull


class OwnMetrics(Known):
    readers: list[Reader]


class Telemetry(Known):
    metrics: OwnMetrics


class Service(Known):
    telemetry: Telemetry
    extensions: list[str] = []
    pipelines: dict[str, Pipeline]


class Config(Known):
    """A whole configuration: components by id, and the pipelines that they make."""

    receivers: dict[str, Any]
    processors: dict[str, Any] = {}
    connectors: dict[str, Any] = {}
    exporters: dict[str, Any]
    extensions: dict[str, Any] = {}
    service: Service

    @model_validator(mode="after")
    def knows_every_component(self) -> Config:
        """Each component is of a known type, has known keys, and is used."""
        for kind, known in KINDS.items():
            for id_, given in getattr(self, kind).items():
                name = id_.partition("/")[0]
                assert name in known, f"{kind} has {id_}, which is not one of {', '.join(known)}"
                known[name].model_validate(given or {})
                assert id_ in self.used(), f"nothing uses {id_}"
        return self

    @model_validator(mode="after")
    def defines_what_its_pipelines_name(self) -> Config:
        """A pipeline names components that are there; connectors stand on both sides."""
        for name, pipeline in self.service.pipelines.items():
            assert name.partition("/")[0] in ("traces", "metrics", "logs")
            assert set(pipeline.receivers) <= {*self.receivers, *self.connectors}
            assert set(pipeline.processors) <= {*self.processors}
            assert set(pipeline.exporters) <= {*self.exporters, *self.connectors}
        assert set(self.service.extensions) == set(self.extensions)
        return self

    def used(self) -> set[str]:
        """Every component that a pipeline or the service names."""
        pipelines = self.service.pipelines.values()
        named = [part for one in pipelines for part in (*one.receivers, *one.processors, *one.exporters)]
        return {*named, *self.service.extensions}

"""Figures that others have published, each with its source; they are not measured here."""

from __future__ import annotations

from typing import Final

__all__ = [
    "COLLECTOR_CORES_PER_BYTE",
    "COLLECTOR_CORES_PER_SPAN",
    "COLLECTOR_MEMORY_BYTES",
    "COLLECTOR_SOURCE",
    "TEMPO_DISTRIBUTOR_BYTES",
    "TEMPO_INGESTER_BYTES",
    "TEMPO_SOURCE",
]

COLLECTOR_CORES_PER_SPAN: Final = 0.20 / 10_000
"""Processors per span and second: 10,000 spans a second over OTLP/HTTP take at most 20 % of one."""
COLLECTOR_CORES_PER_BYTE: Final = 2.50 / (1_000 * 20 * 5_000)
"""Processors per byte and second: 1,000 spans a second with 20 times 5,000 bytes take at most 250 %."""
COLLECTOR_MEMORY_BYTES: Final = 150 * 2**20
"""Memory without queues: at most 150 MiB in these tests."""
COLLECTOR_SOURCE: Final = (
    "limits of the Collector's own load tests: opentelemetry-collector-contrib, testbed/tests/trace_test.go, "
    "TestTrace10kSPS and TestTrace1kSPSWithAttrs"
)

TEMPO_DISTRIBUTOR_BYTES: Final = 10_000_000
"""Bytes per second of a distributor with 2 processors and 2 GB."""
TEMPO_INGESTER_BYTES: Final = 3_000_000
"""Bytes per second of an ingester with 2.5 processors and 4 to 20 GB, the lower of 3 to 5 MB."""
TEMPO_SOURCE: Final = "Grafana Tempo's page on sizing, grafana.com/docs/tempo/latest/setup/size"

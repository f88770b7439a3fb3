"""The size of a recording before it is made, from a workload and the measured bytes of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError
from mttp.study.sizing import public_figures as public
from mttp.study.sizing.measured import BYTES, HELPER_BYTES, PROCESS_BYTES
from mttp.study.sizing.quantities import Quantities
from mttp.study.sizing.workload import MOST, Workload
from mttp.transports.export_target import BUFFER_BYTES
from mttp.transports.otlp.profiles import named

__all__ = ["FILES", "TO", "CollectorNeeds", "StoredSize", "ProcessMemory", "Sizing", "per_second", "size"]

FILES = ("file", "gzip", "zstd")
"""Forms of files that workers write: OTLP JSON lines, and compressed."""
TO = (*FILES, "collector")
"""Where workers may write to."""
COLLECTOR_BUFFER_BYTES = 64 * 2**20
"""The queue of each process for a collector."""
AGENT_QUEUE_BYTES = 4 * 2**30
"""The queue on disk of `collector-config/agent.yaml`."""
URGENT_BYTES = 2**20
"""A process writes at once when it has gathered so much."""
_DAY = 86_400.0
_FEWEST = 1e-6
"""The smallest number of days and of episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSize:
    """The size of everything in one form."""

    bytes_per_second: float
    """Of all workers."""
    bytes_kept: float
    """After the run, or the days that recordings are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Memory that recording takes in each worker, in bytes."""

    process_bytes: float
    """What it adds to a process that has numpy; measured."""
    helper_bytes: float
    """The encoding process beside it; measured."""
    queue_bytes: float
    """What waits to be written, usually."""
    most_queue_bytes: float
    """What may wait while nothing can be written."""
    full_after_seconds: float
    """How long that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorNeeds:
    """What a Collector needs to take and forward everything; from public figures."""

    processors: float
    """Processors."""
    memory_bytes: float
    """Memory without queues."""
    queue_bytes_per_hour: float
    """The queue that an hour without the store behind it fills."""
    agent_queue_seconds: float
    """How long the queue of `collector-config/agent.yaml` lasts, if one agent takes everything."""
    tempo_distributors: int | None = None
    """Distributors of Tempo; only with its profile."""
    tempo_ingesters: int | None = None
    """Ingesters of Tempo; only with its profile."""
    sources: tuple[str, ...]
    """Where the figures are from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What a workload takes; rates are of all workers."""

    workload: Workload
    """What is recorded; `content` and `token_ids` as they are after the transport's defaults."""
    to: str
    """Where it is written to: file, gzip, zstd or collector."""
    profile: str | None
    """The profile of the store behind a collector."""
    episodes: float
    """Number of episodes that are recorded."""
    seconds: float
    """How long it takes to record these."""
    kept_seconds: float
    """Of how long a time they are kept: all of it, or the days that recordings are kept."""
    steps_per_second: float
    """Steps."""
    episodes_per_second: float
    """Episodes that end."""
    spans_per_second: float
    """Spans, those with start markers included, those of the run not."""
    writes_per_second: float
    """Requests to a collector, or writes to files."""
    bytes_per_second: float
    """Bytes that workers write to files, or bodies of requests without compression."""
    gzip_bytes_per_second: float | None
    """Bodies of requests with `compression=gzip`; None for files."""
    kept: Mapping[str, StoredSize]
    """Sizes of everything by form: file, gzip, zstd and parquet; not for a collector."""
    memory: ProcessMemory
    """Memory of each worker."""
    collector: CollectorNeeds | None
    """What a Collector needs; None for files."""
    notes: tuple[str, ...]
    """What is withheld, and what is not known."""


def size(
    workload: Workload,
    *,
    to: str = "file",
    profile: str = "collector",
    days: float = 30.0,
    episodes: float | None = None,
) -> Sizing:
    """
    Return what a workload takes.

    `days` are how long recordings are kept; `episodes` is the number of episodes, by default as many as the
    workers play in these days.
    Raises ConfigureError for a number that is out of range and for an unknown transport, and TransportError
    for an unknown profile.
    """
    if to not in TO:
        raise ConfigureError(f"{to!r} is not one of {', '.join(TO)}")
    for name, value in (("days", days), ("episodes", episodes)):
        if value is not None and not _FEWEST <= value <= MOST:
            raise ConfigureError(f"{name} is {value!r}; it must be a number from {_FEWEST:g} to {MOST:g}")
    limits = named(profile).withholding if to == "collector" else None
    one = per_second(workload, limits)
    count = workload.workers * days * _DAY / workload.episode_seconds if episodes is None else episodes
    seconds = count * workload.episode_seconds / workload.workers
    kept_seconds = min(seconds, days * _DAY)
    form = "otlp" if limits else to
    rate = BYTES[form].dot(one) * workload.workers
    return Sizing(
        workload=workload,
        to=to,
        profile=profile if limits else None,
        episodes=count,
        seconds=seconds,
        kept_seconds=kept_seconds,
        steps_per_second=workload.rate * workload.workers,
        episodes_per_second=workload.workers / workload.episode_seconds,
        spans_per_second=one.spans * workload.workers,
        writes_per_second=one.segments * workload.workers,
        bytes_per_second=rate,
        gzip_bytes_per_second=BYTES["otlp_gzip"].dot(one) * workload.workers if limits else None,
        kept={} if limits else _kept(workload, one, kept_seconds),
        memory=_memory(workload, one, is_collector=limits is not None),
        collector=None if limits is None else _collector(rate, one.spans * workload.workers, profile),
        notes=tuple(_notes(workload, limits)),
    )


def per_second(workload: Workload, limits: Withholding | None = None) -> Quantities:
    """Return what one worker writes per second, of which `limits` withhold some; without the run's spans."""
    segments = max(workload.writes, _recorded(workload) / URGENT_BYTES)
    one = _times(workload.of_episode(limits), 1 / workload.episode_seconds)
    return workload.with_segments(replace(one, markers=min(segments, one.markers)), segments)


def _recorded(workload: Workload) -> float:
    """Return the bytes that a worker puts into its queue per second, before anything is withheld."""
    everything = replace(workload, content=True, token_ids=True).of_episode()
    return BYTES["file"].dot(_times(everything, 1 / workload.episode_seconds))


def _times(one: Quantities, factor: float) -> Quantities:
    return Quantities(**{field.name: getattr(one, field.name) * factor for field in fields(one)})


def _kept(workload: Workload, one: Quantities, seconds: float) -> dict[str, StoredSize]:
    """Return the size in each form of what is recorded in so many seconds."""
    whole = workload.with_segments(one, 0)
    found = {}
    for form in (*FILES, "parquet"):
        rate = BYTES[form].dot(whole if form == "parquet" else one)
        files = 1 if form == "parquet" else workload.workers  # all are converted to one
        total = workload.workers * rate * seconds + files * BYTES[form].processes
        found[form] = StoredSize(bytes_per_second=rate * workload.workers, bytes_kept=total)
    return found


def _memory(workload: Workload, one: Quantities, *, is_collector: bool) -> ProcessMemory:
    recorded = _recorded(workload)
    most = COLLECTOR_BUFFER_BYTES if is_collector else BUFFER_BYTES
    return ProcessMemory(
        process_bytes=PROCESS_BYTES,
        helper_bytes=HELPER_BYTES,
        queue_bytes=recorded / one.segments,
        most_queue_bytes=most,
        full_after_seconds=most / recorded,
    )


def _collector(rate: float, spans: float, profile: str) -> CollectorNeeds:
    processors = spans * public.COLLECTOR_CORES_PER_SPAN + rate * public.COLLECTOR_CORES_PER_BYTE
    is_tempo = profile == "tempo"
    return CollectorNeeds(
        processors=processors,
        memory_bytes=public.COLLECTOR_MEMORY_BYTES,
        queue_bytes_per_hour=rate * 3600,
        agent_queue_seconds=AGENT_QUEUE_BYTES / rate,
        tempo_distributors=math.ceil(rate / public.TEMPO_DISTRIBUTOR_BYTES) if is_tempo else None,
        tempo_ingesters=math.ceil(rate / public.TEMPO_INGESTER_BYTES) if is_tempo else None,
        sources=(public.COLLECTOR_SOURCE, *([public.TEMPO_SOURCE] if is_tempo else [])),
    )


def _notes(workload: Workload, limits: Withholding | None) -> list[str]:
    """Return what is withheld, and for what there is no figure."""
    notes = []
    if not workload.content and (workload.characters or workload.calls):
        notes.append("observations, actions and contents of calls are withheld")
    if not workload.token_ids and workload.tokens:
        notes.append("token ids are withheld")
    if limits is None:
        return notes
    whole, within = workload.of_episode(), workload.of_episode(limits)
    if within.logprobs < whole.logprobs or within.token_ids < whole.token_ids:
        left = whole.token_blocks - max(within.logprobs, within.token_ids) / workload.tokens
        notes.append(
            f"token arrays of {left:,.0f} of {workload.steps:,.10g} steps are beyond the profile's limits"
        )
    if limits.max_text_bytes is not None and workload.content and workload.characters:
        notes.append(f"texts longer than {limits.max_text_bytes:,} bytes are cut, which is not computed")
    notes.append("the size that a trace store keeps is not known")
    return notes

"""What is fuzzed: for each reader, listener and loader its good inputs, and a function of any bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

from fuzzing import seeds
from fuzzing.values import record_values, seeds_of_values

import mttp
from mttp import formats
from mttp.errors import MttpError
from mttp.mist.message_spans import message_spans
from mttp.mist.messages import as_line
from mttp.model.spans import SpanRecord
from mttp.otlp.http_client import Reply
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf_decode import decode_message
from mttp.reading.stores import query
from mttp.tables import TABLES

__all__ = ["TARGETS", "Target"]


class Target(NamedTuple):
    """One thing that takes bytes from elsewhere."""

    seeds: Callable[[], list[bytes]]
    """Good inputs."""
    take: Callable[[bytes], object]
    """Raises nothing but errors of `mttp.errors`."""
    is_text: bool = True
    """Whether inputs are mostly JSON, so that values are exchanged, too."""


# Decoders of bytes in memory.


def _json(data: bytes) -> None:
    for line in data.splitlines():
        try:
            decode_line(line)
        except MttpError:
            decode_line(line, arrays=False)


def _message(data: bytes) -> None:
    as_line(data, number=1)
    message_spans(data, arrays=True)


# Files.


def _read(name: str, data: bytes) -> None:
    Path(name).write_bytes(data)
    recording = mttp.read(name)
    repr((recording.episodes, recording.runs, recording.groups, recording.updates, recording.evals))


def _summarize(data: bytes) -> None:
    Path("summary.jsonl").write_bytes(data)
    str(mttp.summarize("summary.jsonl"))


def _tables(data: bytes) -> None:
    Path("tables.jsonl").write_bytes(data)
    tables = mttp.read("tables.jsonl").tables
    for name in TABLES:
        getattr(tables, name)


def _check(data: bytes) -> None:
    from mttp.reading.checking import check

    Path("check.jsonl").write_bytes(data)
    list(check("check.jsonl").problems)


def _import(name: str, data: bytes) -> None:
    path = Path("imported.eval" if name == "inspect" else "imported.jsonl")
    path.write_bytes(data)
    formats.recognize(path)
    list(formats.format_named(name).read(path))


def _spec(data: bytes) -> None:
    mttp.RewardSpec.from_text(data.decode("utf-8", "replace"))


def _spec_file(data: bytes) -> None:
    Path("spec.yaml").write_bytes(data)
    mttp.RewardSpec.load("spec.yaml")


def _spec_lock(data: bytes) -> None:
    from mttp.rewards.locking import lock_path, read_lock

    lock_path(Path("spec.yaml")).write_bytes(data)
    read_lock(Path("spec.yaml"))


def _lock_seeds() -> list[bytes]:
    one = {"version": "1.0.0", "document": "a" * 64, "code": "b" * 64, "unread": []}
    return [json.dumps({"mttp": 1, "specs": {"gsm8k.yaml": one}}).encode()]


def _rules(data: bytes) -> None:
    from mttp.study.rules import load_rules

    Path("rules.yaml").write_bytes(data)
    load_rules("rules.yaml")


def _labels(kind: str, data: bytes) -> None:
    from mttp.reading.labels import rows

    path = Path(f"labels.{kind}")
    path.write_bytes(data)
    rows(path)


def _spool(name: str, data: bytes) -> None:
    """A folder of a spool, of which one file is changed."""
    from dataclasses import replace

    from mttp.codec.profiles import unpacked
    from mttp.otlp.spans.span_records import framed
    from mttp.transports.otlp.answers import ExportResponse
    from mttp.transports.otlp.batches import Export
    from mttp.transports.spool import SpoolFolder, folders

    path = Path("spool/1-host-1-a")
    path.mkdir(parents=True, exist_ok=True)
    files = {"owner": _OWNER, "sent": b"1 0", "000001.jsonl": seeds.json_lines()[0], name: data}
    for file, content in files.items():
        (path / file).write_bytes(content)
    for found in folders(Path("spool")):
        if (folder := SpoolFolder.adopt(found)) is not None:
            while batch := folder.take(2**20):
                export = Export(lambda *_: ExportResponse(verdict="taken"), 4 * 2**20)
                whole = [replace(each, attributes=unpacked(each.attributes)) for each in batch.records]
                export.run(list(map(framed, whole)))
                folder.advance()
            folder.remove()


def _push(data: bytes) -> None:
    """A push of a recording that sends nothing."""
    from mttp.reading.scanning import Scan
    from mttp.transports.otlp import OtlpTransport
    from mttp.workflows.pushing import Push

    Path("pushed.jsonl").write_bytes(data)
    transport = OtlpTransport("http://localhost:4318/v1/traces", profile="phoenix")
    job = Push(transport=transport, withholding=transport.withholding, dry=True)
    job.run(Scan(["pushed.jsonl"], arrays=True, as_written=True))


_OWNER = b'{"to": "http://localhost:4318/v1/traces", "profile": "collector"}'


# Web apps, in process: the first two bytes select the headers.

_ENCODINGS = (b"", b"gzip", b"deflate", b"identity", b"br")
_KINDS = (b"application/x-protobuf", b"application/json", b"", b"text/plain")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _post(app: Callable[..., Any], path: str, data: bytes) -> None:
    """Post a body, in pieces; the app has to answer."""
    first, second, body = data[:1], data[1:2], data[2:]
    encoding = _ENCODINGS[first[0] % len(_ENCODINGS)] if first else b""
    kind = _KINDS[second[0] % len(_KINDS)] if second else b""
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    headers += [(b"content-encoding", encoding)] if encoding else []
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2), "state": {}}
    middle = len(body) // 2
    pieces = [
        {"type": "http.request", "body": body[:middle], "more_body": True},
        {"type": "http.request", "body": body[middle:], "more_body": False},
    ]
    answers: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return pieces.pop(0) if pieces else {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        answers.append(event)

    _loop().run_until_complete(app(scope, receive, send))
    assert "http.response.start" == answers[0]["type"]
    assert 200 <= answers[0]["status"] < 500, answers[0]


def _headed(found: list[bytes], head: bytes) -> list[bytes]:
    return [head + each for each in found]


def _listener(data: bytes) -> None:
    from mttp.mist.receiving.listener import MIST_PATH, _Inbox

    inbox = _Inbox(capacity=None, max_bytes=1 << 20, timeout=10, max_unfinished_bytes=1 << 24)
    _post(inbox, MIST_PATH, data)


@cache
def _receiver() -> Any:
    from mttp.testing import OtlpReceiver

    return OtlpReceiver(max_http_bytes=1 << 20)


def _receiver_app(data: bytes) -> None:
    from mttp.testing.receiver import _respond

    receiver = _receiver()
    _post(partial(_respond, receiver), "/v1/traces", data)
    receiver.requests.clear()
    receiver._records.clear()


def _receiver_seeds() -> list[bytes]:
    import gzip
    import zlib

    found = seeds.requests()
    return [
        *_headed(found, b"\0\0"),
        *_headed([gzip.compress(each) for each in found], b"\1\0"),
        *_headed([zlib.compress(each) for each in found], b"\2\0"),
        *_headed(seeds.training_lines(), b"\0\1"),
    ]


def _export_reply(data: bytes) -> None:
    from mttp.transports.otlp.http_answers import otlp_answer

    otlp_answer(data)


def _reply_seeds() -> list[bytes]:
    return [
        b"\x0a\x0d\x08\x03\x12\x09too large",
        b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}',
        b"<!doctype html><title>Sign in</title>",
    ]


# Trace stores: a store's own replies, one of which is exchanged.


@cache
def _backend(kind: str) -> Any:
    from stores import JaegerServer, TempoServer

    made: Any = TempoServer() if kind == "tempo" else JaegerServer(newer=kind == "jaeger")
    made.take([record for record in _records() if kind != "jaeger-v1" or _is_plain(record)])
    return made


@cache
def _records() -> list[SpanRecord]:
    return [record for line in seeds.training_lines() for record in decode_line(line)]


def _is_plain(record: SpanRecord) -> bool:
    """Whether the JSON of Go can hold it, which has no NaN and no infinities."""
    return not {"NaN", "Infinity", "-Infinity"} & set(re.findall(r"-?\w+", _jaeger_text(record)))


def _jaeger_text(record: SpanRecord) -> str:
    """The span as an old Jaeger writes it."""
    from stores import jaeger_span

    return json.dumps(jaeger_span(record))


def _asked(backend: Any, url: str) -> Any:
    from stores import Asked

    parts = urlsplit(url)
    return backend(Asked("GET", parts.path, parse_qs(parts.query, keep_blank_values=True), {}, b""))


def _store_client(kind: str, replies: list[bytes] | None, data: bytes | None) -> type:
    place = crc32(data) % 3 if data is not None else -1

    class Client:
        """Answers as the store does, but for one reply."""

        def __init__(self, url: str, **_: Any) -> None:
            self._url = url

        def request(self, url: str, *_: Any, **__: Any) -> Reply:
            nonlocal place
            status, form, body = _asked(_backend(kind), url)
            if replies is not None:
                replies.append(body)
            if data is not None and place <= 0:
                status, body = 200, data
            place -= 1
            return Reply(status=status, reason="", headers={"content-type": form}, body=body)

        def close(self) -> None:
            """Nothing to close."""

    return Client


def _store_seeds(kind: str) -> list[bytes]:
    found: list[bytes] = []
    with patch.object(query, "HttpClient", _store_client(kind, found, None)):
        mttp.read(_store_address(kind))
    return found


def _store_address(kind: str) -> str:
    run = next(
        record.attributes["mttp.run.id"] for record in _records() if "mttp.run.id" in record.attributes
    )
    scheme = kind.partition("-")[0]
    return f"{scheme}://localhost:16686?run={run}" + "&wait=0" * (kind == "tempo")


def _store(kind: str, data: bytes) -> None:
    with patch.object(query, "HttpClient", _store_client(kind, None, data)):
        mttp.read(_store_address(kind))


TARGETS: dict[str, Target] = {
    "otlp-json": Target(seeds.spans, _json),
    "otlp-protobuf": Target(seeds.requests, decode_message, is_text=False),
    "message": Target(seeds.messages, _message),
    "read-json": Target(seeds.json_lines, partial(_read, "read.jsonl")),
    "summarize": Target(seeds.json_lines, _summarize),
    "tables": Target(seeds.json_lines, _tables),
    "check": Target(seeds.json_lines, _check),
    "read-messages": Target(seeds.messages, partial(_read, "read.mttp.jsonl")),
    "gzip": Target(partial(seeds.compressed, "gz"), partial(_read, "read.jsonl.gz"), is_text=False),
    "zstd": Target(partial(seeds.compressed, "zst"), partial(_read, "read.jsonl.zst"), is_text=False),
    "parquet": Target(seeds.parquet_files, partial(_read, "read.parquet"), is_text=False),
    **{
        f"import-{name}": Target(partial(seeds.import_files, name), partial(_import, name), name != "inspect")
        for name in formats.FORMATS
        if name not in ("trl", "art")  # `art` and `trl` read Parquet
    },
    "push": Target(seeds.json_lines, _push),
    "spool": Target(seeds.json_lines, partial(_spool, "000001.jsonl")),
    "spool-owner": Target(lambda: [_OWNER], partial(_spool, "owner")),
    "spool-sent": Target(lambda: [b"1 0", b"1 4096"], partial(_spool, "sent")),
    "spec": Target(seeds.specs, _spec),
    "spec-file": Target(seeds.specs, _spec_file),
    "spec-lock": Target(_lock_seeds, _spec_lock),
    "rules": Target(seeds.rules, _rules),
    "labels-csv": Target(partial(seeds.labels, "csv"), partial(_labels, "csv")),
    "labels-json": Target(partial(seeds.labels, "jsonl"), partial(_labels, "jsonl")),
    "listener": Target(lambda: _headed(seeds.messages(), b"\0\1"), _listener),
    "receiver": Target(_receiver_seeds, _receiver_app),
    "export-reply": Target(_reply_seeds, _export_reply),
    **{
        f"store-{kind}": Target(partial(_store_seeds, kind), partial(_store, kind))
        for kind in ("jaeger", "jaeger-v1", "tempo")
    },
    "values": Target(seeds_of_values, record_values, is_text=False),
}
"""All targets by name."""

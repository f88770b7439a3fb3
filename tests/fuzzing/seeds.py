"""Good inputs, from which the fuzzer makes others; each function works in the current directory."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import zstandard
from formats.test_agent_traces import span, written
from formats.test_completions import ROWS
from formats.test_wandb import TRL, VERL, answered, call
from reading.recorded import record_environment, record_everything, record_training

import mttp
from mttp.cli.files import Format, writer
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf import encode_request, encode_span
from mttp.otlp.whole_files import replacing
from mttp.testing import counting_ids, frozen_clock

__all__ = [
    "compressed",
    "import_files",
    "json_lines",
    "labels",
    "messages",
    "parquet_files",
    "requests",
    "rules",
    "spans",
    "specs",
    "training_lines",
]

_TESTS = Path(__file__).parents[1]
_SPECS = _TESTS.parent / "examples" / "specs"


@cache
def json_lines() -> list[bytes]:
    """Recordings as lines of OTLP JSON, and one of OpenTelemetry's own exporter."""
    with counting_ids(), frozen_clock(tick=0.001):  # the same bytes each time
        for record in (record_everything, record_training, record_environment):
            record()
    names = ("everything.jsonl", "training.jsonl", "environment.jsonl")
    official = _TESTS / "reading" / "data" / "official.jsonl"
    return [*(_fixed(Path(name).read_bytes()) for name in names), official.read_bytes()]


def _fixed(content: bytes) -> bytes:
    """The lines with fixed times, process id and instance id."""
    content = re.sub(rb'"1[78]\d{17}"', b'"1735689600000000000"', content)
    content = re.sub(rb'(process\.pid","value":\{"intValue":")\d+', rb"\g<1>1", content)
    return re.sub(rb'(service\.instance\.id","value":\{"stringValue":")[^"]+', rb"\g<1>1", content)


def training_lines() -> list[bytes]:
    """Single lines of those recordings; some hold several spans."""
    return [line for content in json_lines() for line in content.splitlines()]


def spans() -> list[bytes]:
    """Lines with one span each."""
    records = [record for line in training_lines() for record in decode_line(line)]
    return [line for record in records for line in encode_records([record])]


def requests() -> list[bytes]:
    """The recordings as OTLP protobuf."""
    found = []
    for line in training_lines():
        records = decode_line(line)
        found.append(encode_request([(record.scope, (encode_span(record),)) for record in records]))
    return found


def compressed(kind: str) -> list[bytes]:
    """The recordings, compressed line by line."""
    compress: Callable[[bytes], bytes] = (
        gzip.compress if kind == "gz" else zstandard.ZstdCompressor(1, write_checksum=True).compress
    )
    return [b"".join(map(compress, content.splitlines(keepends=True))) for content in json_lines()]


def messages() -> list[bytes]:
    """The recordings as messages, with and without checksums, and the messages of the reference."""
    found = _converted("source.mttp.jsonl", Format.MESSAGES)
    found += [re.sub(rb',"checksum":\d+', b"", content) for content in found]
    return [*found, *(path.read_bytes() for path in sorted((_TESTS / "data").glob("msg_*.json")))]


def parquet_files() -> list[bytes]:
    """The recordings in Parquet, with and without a digest."""
    found = _converted("source.parquet", Format.PARQUET)
    return found + [content.replace(b"mttp sha256 ", b"mttp_sha256 ", 1) for content in found]


def _converted(target: str, format: Format) -> list[bytes]:
    found = []
    for content in json_lines():
        Path("source.jsonl").write_bytes(content)
        with replacing(Path(target)) as partial:
            writer(Path(target), format)(partial, mttp.scan("source.jsonl", arrays=True))
        found.append(Path(target).read_bytes())
    return found


def import_files(name: str) -> list[bytes]:
    """Files of another library."""
    files = {
        "verifiers": ("verifiers.jsonl",),
        "inspect": ("inspect.eval",),
        "hud": ("hud.jsonl",),
    }
    if name in files:
        return [(_TESTS / "formats" / "files" / file).read_bytes() for file in files[name]]
    if name == "wandb":
        calls = [call("solve", 0), call("chat", 1, "c0", output=answered("4"))]
        return [_lines(TRL), _lines(VERL), _lines(*calls)]
    if name == "agent_traces":
        asked: Mapping[str, Any] = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "gpt-x"}
        openinference = {"openinference__span__kind": "LLM", "llm__model_name": "gpt-x"}
        parts = [{"type": "reasoning", "content": "hm"}, {"type": "tool_call", "id": "c", "name": "f"}]
        said = json.dumps([{"role": "assistant", "parts": parts}, {"role": "tool", "content": None}])
        talk = {**asked, "gen_ai__input__messages": said, "gen_ai__output__messages": said}
        chats = [span(0, "solve"), span(1, "chat", 0, **asked), span(2, "llm", 0, **openinference)]
        chats.append(span(3, "chat", 0, **talk, gen_ai__system_instructions="be brief"))
        path = written(Path(), *chats)
        document = json.loads(path.read_bytes())
        return [path.read_bytes(), json.dumps([document, document], indent=1).encode()]
    return [_lines(ROWS[name], ROWS[name])]


def _lines(*rows: Any) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def specs() -> list[bytes]:
    """Reward specs."""
    return [path.read_bytes() for path in sorted(_SPECS.glob("*.yaml")) if path.stem != "promotion"]


def rules() -> list[bytes]:
    """Promotion rules."""
    return [(_SPECS / "promotion.yaml").read_bytes()]


def labels(kind: str) -> list[bytes]:
    """Tables of labels."""
    row = {"trace_id": "5" * 32, "step": 0, "key": "label", "value": "good", "by": "ada"}
    if kind == "csv":
        table = "\n".join((",".join(row), ",".join(map(str, row.values())))) + "\n"
        return [table.encode(), b'trace_id,label,topic\n%b,good,"a, b"\n' % (b"5" * 32)]
    return [_lines(row, {"trace_id": "5" * 32, "label": "good"})]

"""Lines that the other tools of the stack write, and strategies that make messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mttp.mist.messages import PAYLOADS, ChatMessage, Message, SchemaField

DATA = Path(__file__).parent / "data"
LINES = {
    path.stem.removeprefix("msg_"): path.read_bytes().rstrip(b"\n")
    for path in sorted(DATA.glob("msg_*.json"))
}
"""One message each, as the reference writes it."""
ZEROS: dict[str, str] = json.loads((DATA / "cases_zero_payloads.json").read_text())["payloads"]
"""The reference's bytes of a payload with default values, by type."""
REFERENCE = [json.loads(line) for line in (DATA / "reference.jsonl").read_text().splitlines()]
"""What the reference made of messages, good and broken; bytes are the characters of Latin-1."""

texts = st.text(max_size=8)
int64s = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
unmistakable = numbers.filter(lambda number: abs(number) < 2**53 or abs(number) >= 1e21)
"""Without the whole ones whose shortest digits are another integer."""
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | unmistakable | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
by_name = {
    "params": st.dictionaries(texts, anything, max_size=3),
    "attrs": st.dictionaries(texts, anything, max_size=3),
    "meta": st.dictionaries(texts, texts, max_size=3),
    "tags": st.dictionaries(texts, texts, max_size=3),
    "tasks": st.lists(texts, max_size=3),
    "messages": st.none() | st.lists(st.builds(ChatMessage, role=texts, content=texts), max_size=3),
    "fields": st.none() | st.lists(st.builds(SchemaField, name=texts, type=texts), max_size=3),
}
by_type = {str: texts, bool: st.booleans(), int: int64s, float: numbers}


def _payload(payload: Any) -> Any:
    found = {
        name: by_name[name] if name in by_name else by_type[field.annotation]
        for name, field in payload.model_fields.items()
    }
    return st.builds(payload, **found)


payloads = st.sampled_from(sorted(PAYLOADS)).flatmap(lambda name: _payload(PAYLOADS[name]))
"""Any payload of any type."""
messages = st.builds(
    Message.new,
    source=st.text(min_size=1, max_size=8),
    payload=payloads,
    timestamp_ns=int64s,
    id=st.text(min_size=1, max_size=8),
    checksum=st.booleans(),
)

"""A model that writes what it logs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from openai.types.chat.chat_completion import Choice

_MESSAGE = [(name, pa.string()) for name in ("role", "content", "tool_calls", "tool_call_id")]
SCHEMA = pa.schema(
    [
        ("group_index", pa.int64()),
        ("group_metadata", pa.string()),
        ("group_metrics", pa.string()),
        ("group_logs", pa.list_(pa.string())),
        ("reward", pa.float64()),
        ("metrics", pa.string()),
        ("metadata", pa.string()),
        ("tools", pa.string()),
        ("logs", pa.list_(pa.string())),
        ("messages", pa.list_(pa.struct([*_MESSAGE, ("trainable", pa.bool_())]))),
    ]
)


class Model:
    """A model with a name and a folder."""

    def __init__(self, *, name: str, project: str, base_path: str) -> None:
        self.name = name
        self.folder = Path(base_path) / project / "models" / name

    async def log(
        self, trajectories: Iterable[Any] | None = None, split: str = "val", *, step: int | None = None
    ) -> None:
        """Write groups as Parquet."""
        rows = [
            {
                "group_index": index,
                "reward": one.reward,
                "metrics": json.dumps(one.metrics),
                "metadata": json.dumps(one.metadata) if one.metadata else None,
                "logs": one.logs or None,
                "messages": [_flat(message) for message in one.messages_and_choices],
            }
            for index, group in enumerate(trajectories or ())
            for one in group.trajectories
        ]
        path = self.folder / "trajectories" / split / f"{step or 0:04d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


def _flat(one: Any) -> dict[str, Any]:
    message = one.message.to_dict() if isinstance(one, Choice) else one
    keys = ("role", "content", "tool_calls", "tool_call_id")
    calls = message.get("tool_calls")
    flat = {key: message.get(key) for key in keys} | {"trainable": isinstance(one, Choice)}
    return flat | {"tool_calls": json.dumps(calls) if calls else None}

"""
Spans as Parquet and back, losing nothing: a row is a span, a known attribute is a column of its own name.

What has no column of its type (other people's attributes, events, links, scope, resource) is OTLP JSON in a column.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.reading.columns import FIXED, LISTS, MAPS, SCALARS, Row, from_row, rows
from mttp.spans import SpanRecord
from mttp.wire.streams import Progress

__all__ = ["is_parquet", "read_blocks", "write"]

_MAGIC = b"PAR1"
_GROUP_ROWS = 20_000
_GROUP_BYTES = 1 << 26
_BATCH_ROWS = 2_000

"""Follows the parts of a recording while they are written, and deletes those that were verified."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ledger import Ledger

import mttp
from mttp.errors import MttpError

__all__ = ["Parts"]

_SPAN = re.compile(
    rb'\{"traceId":"([0-9a-f]{32})","spanId":"([0-9a-f]{16})"(,"parentSpanId":"[0-9a-f]{16}")?'
    rb',"startTimeUnixNano":"\d+","endTimeUnixNano":"\d+","flags":\d+,"name":"([^"]*)"'
)
_EXPECTED = re.compile(rb'"mttp\.episode\.span_count","value":\{"intValue":"(\d+)"')
_STEPS = re.compile(rb'"mttp\.steps\.count","value":\{"intValue":"(\d+)"')
_AT_ONCE = 1 << 22
_LINGER = 30.0
"""Seconds for which a file is read on after nothing should be written to it any more."""
_FULL = 16_000_000
"""As in the training process: a file of this size is followed by its next part."""


class _Part:
    """One file, by its descriptor: it may be renamed or deleted meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY)
        self.inode = os.fstat(self.fd).st_ino
        self.rest = b""
        self.quiet_since: float | None = None
        self.is_gone = False

    def lines(self) -> bytes:
        """Return whole lines that were written since."""
        data = self.rest + os.read(self.fd, _AT_ONCE)
        end = data.rfind(b"\n") + 1
        self.rest = data[end:]
        return data[:end]


class Parts:
    """All files of a folder, and all that were in it."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self._folder = folder
        self._parts: dict[int, _Part] = {}

    def follow(self, now: float) -> None:
        """Read what is new, and verify and delete what is finished; `now` is a monotonic time."""
        for path in sorted(self._folder.glob("*.jsonl")):
            if (found := path.stat()).st_ino not in self._parts:
                self._parts[found.st_ino] = _Part(path)
                self.counts["files"] += 1
        for part in list(self._parts.values()):
            self._read(part)
            is_finished = part.is_gone or os.fstat(part.fd).st_size >= _FULL
            if not is_finished:
                continue
            if part.quiet_since is None:
                part.quiet_since = now
            elif now - part.quiet_since > _LINGER:
                self._finish(part)

    def remove_current(self, *, rename: bool) -> bool:
        """Rename or delete the newest file that is not full; False if there is none."""
        current = [
            part
            for part in self._parts.values()
            if not part.is_gone and os.fstat(part.fd).st_size < _FULL and part.path.exists()
        ]
        if not current:
            return False
        part = max(current, key=lambda each: os.fstat(each.fd).st_mtime)
        if rename:
            part.path = part.path.rename(part.path.with_suffix(f".{part.inode}.rotated"))
        else:
            part.path.unlink()
        part.is_gone = True
        return True

    def close(self) -> None:
        """Read everything to its end, and verify it."""
        for part in list(self._parts.values()):
            self._finish(part)

    def as_dict(self) -> dict[str, Any]:
        """What is in the files, and what is wrong with them."""
        return {**self.ledger.as_dict(), **self.counts, "problems": dict(self.problems)}

    def _read(self, part: _Part) -> None:
        while lines := part.lines():
            self.counts["bytes"] += len(lines)
            self.counts["lines"] += lines.count(b"\n")
            found = list(_SPAN.finditer(lines))
            ends = [match.start() for match in found[1:]] + [len(lines)]
            for match, end in zip(found, ends, strict=True):
                _enter(self.ledger, match, lines, end)

    def _finish(self, part: _Part) -> None:
        self._read(part)
        self.counts["torn_ends"] += bool(part.rest)
        if part.path.exists() and part.path.stat().st_ino == part.inode:
            self._verify(part)
        os.close(part.fd)
        del self._parts[part.inode]

    def _verify(self, part: _Part) -> None:
        """Read a file with mttp itself; episodes that began or end in another part are incomplete in it."""
        self.counts["verified_files"] += 1
        alone = part.path.rename(self._folder.parent / f"verify-{part.inode}.jsonl")
        try:
            for problem in mttp.summarize(alone).problems:
                self.problems[problem.kind] += 1
        except MttpError as error:
            self.problems[f"{type(error).__name__}: {error}"[:200]] += 1
        alone.unlink()


def _enter(ledger: Ledger, match: re.Match[bytes], lines: bytes, end: int) -> None:
    trace_id, span_id, parent, name = match.groups()
    steps, weight, expected = int(name == b"step"), 1, None
    if parent is None and (found := _EXPECTED.search(lines, match.end(), end)):
        expected = int(found[1])
    if name == b"steps" and (found := _STEPS.search(lines, match.end(), end)):
        steps = weight = int(found[1])
    ledger.add(
        trace_id.decode(), int(span_id, 16), name.decode(), steps=steps, weight=weight, expected=expected
    )


def children(folder: Path) -> list[dict[str, Any]]:
    """What the forked children reported."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("child-*.json"))]

"""Searches Tempo by TraceQL, and reads it trace by trace."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

from mttp.model.log import log
from mttp.model.spans import SpanRecord
from mttp.reading.stores import otlp
from mttp.reading.stores.address import Address
from mttp.reading.stores.query import StoreNotFound, ask
from mttp.reading.stores.store import Store
from mttp.semconv import attributes as a
from mttp.semconv.registry import wanted

__all__ = ["Tempo", "open"]


CUT_BYTES = 2048
"""Length at which Tempo truncates a string, by default."""
_PAUSE_SECONDS = 2.0
_LOG_SECONDS = 10.0
_COMPARED = re.compile(r"span\.([a-z0-9_.]+) *(?:=|!=|<=?|>=?) *(-?\d+)(?![\d.a-zµ])")
"""A comparison of an attribute with an integer in TraceQL, not with a duration."""
_DAYS_BACK = 7
"""Longest time span of a search, by default."""


def open(address: Address) -> Store:
    """The Tempo at an address."""
    return Tempo(address)


class Tempo(Store):
    """Searches by `/api/search`, and reads each trace by `/api/v2/traces`."""

    def search(self) -> Iterator[str]:
        """Search by the query, else by run, else for all runs; repeat until a run is complete."""
        trace_ids: set[str] = set()
        next_log = 0.0
        for number, left in enumerate(self._rounds(_PAUSE_SECONDS)):
            if number and (now := time.monotonic()) >= next_log:
                next_log = now + _LOG_SECONDS
                log.warning(
                    "mttp: Tempo's search returns %s of run %s so far, since it finds traces half a minute "
                    "after they arrive; repeating it for %.0f s (wait=0 searches once)",
                    f"{len(trace_ids):,} trace{'' if len(trace_ids) == 1 else 's'}",
                    self.address.run,
                    left,
                )
            for trace in ask(self.address, "/api/search", self._query()).get("traces") or ():
                trace_id = str(trace["traceID"]).lower().zfill(32)
                if trace_id not in trace_ids:
                    trace_ids.add(trace_id)
                    yield trace_id
            if len(trace_ids) >= self.address.limit:
                break
        self._note_missing_end(trace_ids)

    def _query(self) -> dict[str, str]:
        options, now = self.address.options, int(time.time())
        return {
            "q": options.get("q") or self._of_run(),
            "limit": str(self.address.limit),
            "start": options.get("start") or str(now - _DAYS_BACK * 86400),
            "end": options.get("end") or str(now),
            "spss": "1",
        }

    def _of_run(self) -> str:
        condition = (
            "!= nil" if self.address.run is None else f"= {json.dumps(self.address.run, ensure_ascii=False)}"
        )
        return f"{{ span.{a.RUN_ID} {condition} }}"

    def trace(self, trace_id: str) -> list[SpanRecord]:
        """The spans of a trace; a partial trace is added to the losses."""
        path = f"/api/v2/traces/{trace_id}"
        try:
            answer = ask(self.address, path)
        except StoreNotFound:
            return []
        if answer.get("status") == "PARTIAL":
            self.losses.append(f"trace {trace_id} is partial: {answer.get('message', '')}")
        trace = answer.get("trace")
        if not trace:
            return []
        return otlp.spans(f"{self.address.url}{path}", trace)

    def _add_losses(self, span: SpanRecord) -> None:
        super()._add_losses(span)
        omitted = {str(omission).partition(": ")[0] for omission in span.attributes.get(a.OMISSIONS) or ()}
        for key, value in span.attributes.items():
            if isinstance(value, str) and key not in omitted and len(value.encode()) == CUT_BYTES:
                self.losses.append(
                    f"{key} of span {span.name!r} ({span.span_id}) is {CUT_BYTES:,} bytes long, "
                    "the length at which Tempo truncates strings: the rest is lost; send with profile=tempo"
                )

    def nothing(self) -> str:
        """The message if no trace was found, with the query."""
        if self.address.traces:
            return "the store has none of these traces"
        query = self._query()["q"]
        return (
            f"no trace was found by {query} in the last {_DAYS_BACK} days; "
            f"start=SECONDS and end=SECONDS, since 1970, set another time span{_of_integers(query)}"
        )


def _of_integers(query: str) -> str:
    """Advice for a query that compares a double with an integer, which never matches."""
    for key, literal in _COMPARED.findall(query):
        if wanted(key) == "double":
            return (
                f". {key} is a double, which never matches an integer: write {literal}.0 instead of {literal}"
            )
    return ""

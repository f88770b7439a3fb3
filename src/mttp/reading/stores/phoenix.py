"""Reads spans of a Phoenix project, page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mttp.model.spans import SpanRecord
from mttp.reading.stores import otlp
from mttp.reading.stores.address import Address
from mttp.reading.stores.query import StoreNotFound, ask
from mttp.reading.stores.store import Store
from mttp.semconv import attributes as a

__all__ = ["Phoenix", "open"]

_PAGE = 1000


def open(address: Address) -> Store:
    """The Phoenix at an address."""
    return Phoenix(address)


class Phoenix(Store):
    """Reads `/v1/projects/PROJECT/spans/otlpv1`, whose spans have no resource, scope, kind and links."""

    def search(self) -> Iterator[str]:
        """Search root spans, by run if given."""
        trace_ids: set[str] = set()
        run = self.address.run or ""
        # in quotes, since 42 without quotes is a number; the filter matches only ASCII
        of_run = {"attribute": f"{a.RUN_ID}:{json.dumps(run)}"} if run and run.isascii() else {}
        for page in self._pages(parent_id="null", **of_run):
            for span in page:
                trace_id = str(span["trace_id"])
                if trace_id not in trace_ids and (not run or of_run or _is_of(run, span)):
                    trace_ids.add(trace_id)
                    yield trace_id

    def trace(self, trace_id: str) -> list[SpanRecord]:
        """All spans of the trace."""
        try:
            spans = [span for page in self._pages(trace_id=trace_id) for span in page]
        except StoreNotFound:
            return []
        document = {
            "resourceSpans": [{"scopeSpans": [{"spans": spans[::-1]}]}]
        }  # pages start with the newest span
        return otlp.spans(self.address.url, document)

    def _pages(self, **filters: str) -> Iterator[list[dict[str, Any]]]:
        project = self.address.options.get("project", "default")
        cursor: str | None = None
        while True:
            page = {"cursor": cursor} if cursor else {}
            answer = ask(
                self.address, f"/v1/projects/{project}/spans/otlpv1", {"limit": _PAGE, **filters, **page}
            )
            yield answer.get("data") or []
            cursor = answer.get("next_cursor")
            if not cursor:
                return


def _is_of(run: str, span: Mapping[str, Any]) -> bool:
    values = (item["value"] for item in span.get("attributes") or () if item["key"] == a.RUN_ID)
    return any(value.get("string_value") == run for value in values)

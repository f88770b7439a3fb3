"""Reads traces of an MLflow experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mttp.codec.plain import to_json
from mttp.model.spans import SpanRecord
from mttp.reading.stores import otlp
from mttp.reading.stores.address import Address
from mttp.reading.stores.query import StoreNotFound, ask
from mttp.reading.stores.store import Store
from mttp.semconv import attributes as a
from mttp.semconv.registry import wanted

__all__ = ["Mlflow", "open"]

_PAGE = 100


def open(address: Address) -> Store:
    """The MLflow at an address."""
    return Mlflow(address)


class Mlflow(Store):
    """Searches by `/api/3.0/mlflow/traces/search`, and reads each trace by `/api/3.0/mlflow/traces/get`."""

    def search(self) -> Iterator[str]:
        """Search the experiment, by run if given."""
        experiment = self.address.options.get("experiment", "0")
        query: dict[str, Any] = {
            "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}],
            "max_results": _PAGE,
        }
        if self.address.run:
            quote = '"' if "'" in self.address.run else "'"
            # MLflow stores the attributes of the resource as tags
            query["filter"] = f"tags.`{a.RUN_ID}` = {quote}{self.address.run}{quote}"
        while True:
            answer = ask(self.address, "/api/3.0/mlflow/traces/search", body=query)
            for trace in answer.get("traces") or ():
                yield str(trace["trace_id"]).removeprefix("tr-")
            if not (token := answer.get("next_page_token")):
                return
            query["page_token"] = token

    def trace(self, trace_id: str) -> list[SpanRecord]:
        """All spans of the trace; MLflow returns no resource and scope."""
        path = "/api/3.0/mlflow/traces/get"
        try:
            answer = ask(self.address, path, {"trace_id": f"tr-{trace_id}", "allow_partial": "true"})
        except StoreNotFound:
            return []
        spans = (answer.get("trace") or {}).get("spans") or []
        document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
        return [_restored(span) for span in otlp.spans(f"{self.address.url}{path}", document)]


def _restored(span: SpanRecord) -> SpanRecord:
    """The span without MLflow's attributes, and with strings where the convention defines strings."""
    values = {
        key: to_json(value, []) if wanted(key) == "string" and not isinstance(value, str) else value
        for key, value in span.attributes.items()
        if not key.startswith("mlflow.")
    }
    return replace(span, attributes=values)

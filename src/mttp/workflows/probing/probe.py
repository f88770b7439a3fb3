"""Runs a probe: sends the cases, waits for them, and compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep, time_ns
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from mttp.errors import ReadError, TransportError
from mttp.model import ids
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame
from mttp.otlp.http_client import HttpClient, NoReply
from mttp.otlp.spans.span_records import framed
from mttp.reading.stores import Store
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.http_answers import otlp_answer
from mttp.transports.otlp.profiles import DEFAULT, guessed
from mttp.transports.otlp.settings import TRACES_PATH
from mttp.transports.partial_export import PartialExport
from mttp.workflows.probing.cases import ProbeCase, every_case
from mttp.workflows.probing.findings import ProbeFinding, compared, suited

__all__ = ["Probe", "ProbeReport"]

PAUSE_SECONDS = 0.5
RETRY_SECONDS = 60.0
"""Seconds for which a case is sent again to a busy receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The result of a probe."""

    to: str
    """The receiver that the cases were sent to."""
    query: str
    """The store that they were read from; empty if there is none."""
    run_id: str
    """Id of the cases' run."""
    findings: Sequence[ProbeFinding]
    """One finding per case, in the order of sending."""
    logs: str
    """The receiver's response to logs, over HTTP."""
    profile: str
    """Name of the recommended profile."""
    helpless: Sequence[str]
    """The lost cases that no profile avoids."""

    @property
    def silent(self) -> list[ProbeFinding]:
        """The cases that were lost although the receiver reported success."""
        return [finding for finding in self.findings if finding.silent]


@dataclass(slots=True, kw_only=True)
class Probe:
    """One probe of one receiver."""

    transport: OtlpTransport
    """The transport to the receiver."""
    store: Store | None = None
    """The store to read back from."""
    wait: float = 300.0
    """Largest number of seconds to wait for spans."""
    quiet: float = 15.0
    """Seconds without a new span after which missing spans are lost."""
    first: float = 90.0
    """Seconds to wait for the first span: some stores return nothing for half a minute."""
    on_progress: Callable[[str], None] | None = None
    """Called with a description of each activity."""
    run_id: str = field(default_factory=ids.run_id)
    """Id of the cases' run."""
    _is_open: bool = field(default=False, init=False)
    """Whether the receiver has accepted a case."""

    def run(self) -> ProbeReport:
        """
        Send every case, read it back, and return the report.

        Raises TransportError if the receiver accepts nothing, and ReadError if the store can't be read.
        """
        sent = list(every_case(self.run_id, time_ns()))
        answers = []
        for case in sent:
            self._report(f"sending {case.name}")
            answers.append(self._send(case))
            if len(answers) == 1 and answers[0] != "taken":
                raise TransportError(f"{self.transport!r} does not accept a short string: {answers[0]}")
            if len(answers) == 1 and self.store is not None:
                self.store.read_trace(case.trace_id)  # fails before the other cases are sent
        traces = self._read([case for case, answer in zip(sent, answers, strict=True) if answer == "taken"])
        findings = [self._finding(case, answer, traces) for case, answer in zip(sent, answers, strict=True)]
        guess = guessed(self.transport.settings.endpoint)
        profile, helpless = suited(sent, findings, guess=None if guess is DEFAULT else guess.name)
        return ProbeReport(
            to=repr(self.transport),
            query="" if self.store is None else repr(self.store),
            run_id=self.run_id,
            findings=findings,
            logs=self._logs(),
            profile=profile,
            helpless=helpless,
        )

    def _send(self, case: ProbeCase) -> str:
        """Send a case, repeatedly if the receiver is busy; return the answer."""
        spans: Sequence[ReadableSpan | Frame] = list(map(framed, case.spans))
        end = monotonic() + RETRY_SECONDS
        while True:
            try:
                self.transport.export(spans)
            except PartialExport as refused:
                wait = max(refused.retry_after or 0.0, PAUSE_SECONDS)
                is_final = refused.rejections or not refused.kept or not self._is_open
                if is_final or monotonic() + wait > end:
                    return str(refused).removeprefix(f"{self.transport!r}: ")
                spans = refused.kept
                sleep(wait)
            else:
                self._is_open = True
                return "taken"

    def _read(self, cases: Sequence[ProbeCase]) -> dict[str, _Trace]:
        """The spans of each trace, when all have arrived or no more arrive."""
        if self.store is None:
            return {}
        traces = {case.trace_id: _Trace() for case in cases}
        end, quiet = monotonic() + self.wait, monotonic() + self.first
        while True:
            waiting = [case for case in cases if len(traces[case.trace_id].spans) < len(case.spans)]
            self._report(f"waiting for {len(waiting)} of {len(cases)} traces")
            before = sum(len(trace.spans) for trace in traces.values())
            for case in waiting:
                traces[case.trace_id] = self._trace(case.trace_id)
            if sum(len(trace.spans) for trace in traces.values()) > before:
                quiet = monotonic() + self.quiet
            if not waiting or monotonic() > min(end, quiet):
                return traces
            sleep(PAUSE_SECONDS)

    def _trace(self, trace_id: str) -> _Trace:
        assert self.store is not None
        try:
            return _Trace(self.store.read_trace(trace_id))
        except ReadError as error:
            return _Trace([], str(error))

    def _finding(self, case: ProbeCase, answer: str, traces: dict[str, _Trace]) -> ProbeFinding:
        if answer != "taken":
            return ProbeFinding(case=case.name, answer=answer, outcome="refused", detail=answer)
        if self.store is None:
            return ProbeFinding(case=case.name, answer=answer, outcome="unknown")
        trace = traces[case.trace_id]
        if trace.why:
            return ProbeFinding(case=case.name, answer=answer, outcome="lost", detail=trace.why)
        outcome, detail = compared(case, trace.spans)
        if outcome == "whole" and (doubt := self.store.doubt(case.trace_id)):
            outcome, detail = "changed", doubt
        return ProbeFinding(case=case.name, answer=answer, outcome=outcome, detail=detail)

    def _logs(self) -> str:
        """The receiver's response to an empty logs request."""
        settings = self.transport.settings
        if settings.protocol != "http":
            return "not asked over gRPC"
        url = settings.endpoint.removesuffix(TRACES_PATH) + "/v1/logs"
        headers = {**settings.headers, "content-type": "application/x-protobuf"}
        try:
            client = HttpClient(url, tls=settings.tls() if settings.secure else None)
            reply = client.request(url, b"", headers=headers, timeout=settings.timeout, max_bytes=1 << 16)
        except NoReply as error:
            return str(error)
        is_taken = 200 <= reply.status < 300 and otlp_answer(reply.body) is not None
        return "taken" if is_taken else "not taken: " + reply.summary(headers, b"")

    def _report(self, what: str) -> None:
        if self.on_progress is not None:
            self.on_progress(what)


class _Trace(NamedTuple):
    """The response of a store for a trace."""

    spans: Sequence[SpanRecord] = ()
    """Spans of the trace."""
    why: str = ""
    """The store's error message; empty if there is none."""

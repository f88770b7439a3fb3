"""Phoenix and MLflow themselves, where a variable says at which address: what is sent is read back equal."""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import monotonic, sleep
from urllib.parse import urlencode

import pytest
from specimen import EVERYTHING

import mttp
from mttp.errors import ReadError
from mttp.model import ids
from mttp.reading import stores
from mttp.recording import configuration
from mttp.testing import OtlpReceiver, assert_same
from mttp.transports.otlp import OtlpTransport
from mttp.workflows.probing import Probe, ProbeReport

pytestmark = pytest.mark.timeout(600)
STORES = {name: os.environ.get(f"{name.upper()}_URL", "") for name in ("phoenix", "mlflow")}
"""The address of each, e.g. PHOENIX_URL=http://127.0.0.1:6006; empty where there is none."""


@dataclass(frozen=True)
class Real:
    """A store that runs."""

    name: str
    url: str

    @property
    def query(self) -> str:
        """Where it is read."""
        return f"{self.name}://{self.url.partition('://')[2]}"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Real:
    """Each store that there is."""
    if not STORES[request.param]:
        pytest.skip(f"no {request.param} runs here: .ci/backends starts one")
    return Real(request.param, STORES[request.param])


def arrived(address: str, count: int, *, seconds: float = 120) -> mttp.Recording:
    """What a store has of a run, once that is so many episodes without a problem."""
    end = monotonic() + seconds
    while True:
        try:
            found = mttp.read(address)
            if (len(found), found.problems) == (count, []) or monotonic() > end:
                return found
        except ReadError:
            if monotonic() > end:
                raise
        sleep(0.5)


def test_what_is_sent_is_read_back_equal(store: Real) -> None:
    """
    By the store's profile: all that it does not keep was left out and named, the rest is what it was.
    """
    run = ids.run_id()
    with OtlpReceiver() as receiver:
        routes = [
            mttp.Route(url, profile=store.name, content=True) for url in (store.url, receiver.http_address)
        ]
        with mttp.configure(routes, run_id=run, config={"lr": 0.1}, close_timeout=60) as session:
            session.record(EVERYTHING)
            with mttp.episode(env="long") as episode:
                for number in range(1200):
                    with episode.step() as step:
                        step.observation([float(number), 1.0])
                        step.reward(1.0)
        assert not session.stats.lost
        configuration.forget()
        expected = mttp.read(receiver)

    found = arrived(f"{store.query}?run={run}", len(expected))

    assert ([], []) == (expected.problems, found.problems)
    for one, other in zip(expected.episodes, found.episodes, strict=True):
        assert_same(one, other)
    assert_same(expected.runs[0], found.runs[0])


LOST = {
    "phoenix": {
        "NaN": "lost",
        "infinity": "lost",
        "array with NaN": "changed",
        "bytes": "lost",
        "nested map": "changed",
        "list of several kinds": "changed",
        "list of lists": "changed",
        "kind, status, event, link, times, scope": "changed",
    },
    "mlflow": {
        "text that is JSON": "changed",
        "text with a huge integer": "lost",
        "bytes": "changed",
        "kind, status, event, link, times, scope": "changed",
    },
}
"""What each was seen to lose although it had answered 200."""


def probed(store: Real) -> ProbeReport:
    """The report of a probe."""
    transport = OtlpTransport(f"{store.url}/v1/traces", profile=store.name)
    return Probe(transport=transport, store=stores.open(store.query), quiet=60).run()


def test_a_probe_finds_what_it_loses(store: Real) -> None:
    """
    And names the store's own profile.
    """
    report = probed(store)

    lost = {finding.case: finding.outcome for finding in report.findings if finding.outcome != "whole"}
    assert (LOST[store.name], store.name) == (lost, report.profile)


def test_a_run_is_found_whatever_its_id_looks_like(store: Real) -> None:
    """
    A number, a truth, quotes, and what is no ASCII.
    """
    ending = ids.run_id()
    for number, run in enumerate((f"4{int(ending, 16)}", f"it's {ending}", f'"{ending}"', f"日本 {ending}")):
        session = mttp.configure(store.url, profile=store.name, run_id=run, close_timeout=60)
        with session, mttp.episode(env=f"odd-{number}"):
            pass
        configuration.forget()

        found = arrived(f"{store.query}?{urlencode({'run': run})}", 1)

        assert [f"odd-{number}"] == [episode.env for episode in found]

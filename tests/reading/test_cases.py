"""Each folder of `cases` is a recording with one thing wrong, and the document that a check must print."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs

import mttp
from mttp.pages.checks import check_document as document
from mttp.reading.checking import LEVELS
from mttp.reading.checking.findings import Id
from mttp.semconv import attributes as a
from mttp.semconv import registry

HERE = Path(__file__).parent
CASES = sorted(path for path in (HERE / "cases").iterdir() if path.is_dir())
GUIDE = HERE.parents[1] / "docs" / "checking.md"


@pytest.fixture(autouse=True)
def _something_is_deprecated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """The registry has nothing that is deprecated yet."""
    if "deprecated" in request.node.name:
        note = "use `mttp.action.logprob`."
        known = registry.attributes()[a.STEP_LOGPROB]
        deprecated = structs.replace(known, deprecated=("renamed", note))
        monkeypatch.setitem(registry.attributes(), a.STEP_LOGPROB, deprecated)
    registry.attribute.cache_clear()
    yield
    registry.attribute.cache_clear()


def found(case: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the check says of the case's recording."""
    monkeypatch.chdir(case)
    return document(mttp.check("recording.jsonl"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_wrong_is_found(case: Path, monkeypatch: pytest.MonkeyPatch):
    """
    A recording causes the expected document; UPDATE_EXPECTED=1 rewrites it.
    """
    actual, path = found(case, monkeypatch), case / "expected.json"
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(json.dumps(actual, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    expected = json.loads(path.read_text(encoding="utf-8"))

    assert expected == actual


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_has_its_finding_alone(case: Path, monkeypatch: pytest.MonkeyPatch):
    """
    A case is named after its finding; `illegal_namespace` also causes `missing_attribute`.
    """
    named = {"problems": set(), "illegal_namespace": {"illegal_namespace", "missing_attribute"}}
    expected = named.get(case.name, {case.name})

    assert expected == set(found(case, monkeypatch)["ids"])


def test_every_finding_has_a_case():
    """
    Every id of the check has a case.
    """
    assert {*get_args(Id), "problems"} == {case.name for case in CASES}


def test_the_guide_explains_every_finding_with_its_level():
    """
    Every value of the type has a row in the table.
    """
    section = GUIDE.read_text().partition("## What may be found")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE))
    seen = {
        finding["id"]: {finding["level"], rows[finding["id"]]}
        for case in CASES
        for finding in json.loads((case / "expected.json").read_text())["findings"]
        if finding["id"] != "schema_url_mismatch"  # it has two
    }

    assert list(get_args(Id)) == list(rows)
    assert {1} == {len(levels) for levels in seen.values()}
    assert set(LEVELS) == set(rows.values())

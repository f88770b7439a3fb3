"""Files of every released version are read for ever, and the names of its convention stay known."""

import json
from pathlib import Path

import pytest
import released

import mttp
from mttp.semconv.registry import attributes

RELEASES = sorted(path for path in released.FOLDER.iterdir() if path.is_dir())
SCHEMAS = sorted((Path(__file__).parents[1] / "semconv" / "schemas").glob("*.txt"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_files_of_a_release_are_read(release):
    """
    Each kind of file that the version wrote gives what it gave then: recordings, specs, locks and rules.
    """
    expected = json.loads((release / "expected.json").read_text(encoding="utf-8"))

    assert expected == released.summary(release)


def test_every_format_has_a_file():
    """
    A release leaves a file of each format that is read: lines, compressed lines, Parquet, messages, protobuf.
    """
    expected = {
        "collector.binpb",
        "collector.jsonl",
        "evaluation.jsonl",
        "promotion.yaml",
        "recording.jsonl",
        "recording.jsonl.gz",
        "recording.jsonl.zst",
        "recording.mttp.jsonl",
        "recording.parquet",
        "spec.yaml",
        "spec.yaml.lock",
    }

    assert RELEASES
    for release in RELEASES:
        assert expected <= {path.name for path in release.iterdir()}


def test_no_format_loses_anything():
    """
    A release's recording is equal in each of its formats, and in the requests that a collector received.
    """
    for release in RELEASES:
        read = json.loads((release / "expected.json").read_text(encoding="utf-8"))
        same = [read[name] for name in read if name.startswith(("recording.", "collector."))]

        assert len(same) == 7
        assert all(one["episodes"] == same[0]["episodes"] for one in same)


def test_a_version_is_released_with_its_files():
    """
    The version of the package has its files before it is published: `make fixtures VERSION=...` makes them.
    """
    assert mttp.__version__ in {release.name for release in RELEASES}


@pytest.mark.parametrize("names", SCHEMAS, ids=lambda path: path.stem)
def test_no_published_name_is_forgotten(names):
    """
    An attribute of an earlier version stays defined, deprecated where it was renamed: readers need its type.
    """
    published = names.read_text(encoding="utf-8").split()

    assert len(published) > 200
    assert set(published) <= attributes().keys()

"""Renames, as consumers of older telemetry read them."""

import pytest
import yaml
from tool.load import UnusableInput
from tool.registry import Attribute, Registry, Signal
from tool.schema_file import added, names, previous, published, render


def attribute(key, renamed_to=None):
    """An attribute, deprecated where it was renamed."""
    return Attribute(
        key=key,
        type="int",
        brief="A number.",
        stability="development",
        deprecated={"reason": "renamed", "renamed_to": renamed_to} if renamed_to else None,
        file="model/a.yaml",
    )


def metric(name, renamed_to=None):
    """A metric, deprecated where it was renamed."""
    deprecated = {"deprecated": {"reason": "renamed", "renamed_to": renamed_to}} if renamed_to else {}
    return Signal(section="metrics", name=name, refs=(), groups=(), facts=deprecated, file="model/a.yaml")


def registry(version, *, attributes=(), metrics=()):
    """A registry at a version."""
    manifest = {"schema_url": f"https://example.org/schemas/{version}"}
    return Registry(manifest=manifest, attributes=tuple(attributes), signals=tuple(metrics))


def test_nothing_renamed_leaves_the_version_empty():
    """
    A version without renames is listed, and is empty.
    """
    expected = {
        "file_format": "1.1.0",
        "schema_url": "https://example.org/schemas/0.1.0",
        "versions": {"0.1.0": {}},
    }

    assert expected == yaml.safe_load(render(registry("0.1.0", attributes=[attribute("mttp.a.b")])))


def test_renames_of_attributes_and_metrics():
    """
    A deprecated name with a successor becomes a rename, for all signals where it is an attribute.
    """
    now = registry(
        "0.2.0",
        attributes=[attribute("mttp.a.old", "mttp.a.new"), attribute("mttp.a.new")],
        metrics=[metric("mttp.as.old", "mttp.as.new"), metric("mttp.as.new")],
    )
    expected = {
        "0.2.0": {
            "all": {"changes": [{"rename_attributes": {"attribute_map": {"mttp.a.old": "mttp.a.new"}}}]},
            "metrics": {"changes": [{"rename_metrics": {"mttp.as.old": "mttp.as.new"}}]},
        }
    }

    assert expected == yaml.safe_load(render(now))["versions"]


def test_obsolete_name_is_no_rename():
    """
    A name that went away without a successor is not translated.
    """
    gone = Attribute(
        key="mttp.a.gone",
        type="int",
        brief="A number.",
        stability="development",
        deprecated={"reason": "obsoleted", "note": "Nobody wrote it."},
        file="model/a.yaml",
    )
    expected = {"0.2.0": {}}

    assert expected == yaml.safe_load(render(registry("0.2.0", attributes=[gone])))["versions"]


def test_rename_belongs_to_the_version_that_made_it():
    """
    A later version repeats the earlier ones as they were published and adds only what is new.
    """
    first = [attribute("mttp.a.one", "mttp.a.two"), attribute("mttp.a.two")]
    second = [*first[:1], attribute("mttp.a.two", "mttp.a.three"), attribute("mttp.a.three")]
    published = yaml.safe_load(render(registry("0.2.0", attributes=first)))
    versions = yaml.safe_load(render(registry("0.3.0", attributes=second), earlier=published))["versions"]
    renames = {
        version: change["all"]["changes"][0]["rename_attributes"]["attribute_map"]
        for version, change in versions.items()
    }
    expected = {"0.3.0": {"mttp.a.two": "mttp.a.three"}, "0.2.0": {"mttp.a.one": "mttp.a.two"}}

    assert expected == renames
    assert list(expected) == list(renames)


def test_previous_is_the_newest_older_version(tmp_path):
    """
    Versions are compared as numbers, and neither the version itself nor a newer one counts.
    """
    for version in ("0.2.0", "0.9.0", "0.10.0", "0.11.0"):
        (tmp_path / f"{version}.yaml").write_text(f"schema_url: {version}", encoding="utf-8")
    expected = {"schema_url": "0.9.0"}

    assert expected == previous(tmp_path, version="0.10.0")


def test_first_version_has_no_previous(tmp_path):
    """
    Where no older version was published there is nothing to repeat.
    """
    assert previous(tmp_path, version="0.1.0") is None


def test_schema_file_with_another_name_is_unusable(tmp_path):
    """
    A file that no version names is refused, since its place in the history is unknown.
    """
    (tmp_path / "latest.yaml").write_text("{}", encoding="utf-8")

    with pytest.raises(UnusableInput, match=r"<major>\.<minor>\.<patch>"):
        previous(tmp_path, version="0.1.0")


def test_attributes_of_a_version():
    """
    Its own and the reused ones, sorted, without deprecated names.
    """
    now = registry(
        "0.2.0",
        attributes=[attribute("mttp.a.old", "mttp.a.new"), attribute("mttp.a.new"), attribute("mttp.a.b")],
    )

    assert "mttp.a.b\nmttp.a.new\n" == names(now)


def test_what_a_version_added():
    """
    Attributes that no earlier version had; the first version added none, and a new name is no new attribute.
    """
    now = registry(
        "0.3.0",
        attributes=[
            attribute("mttp.a.old", "mttp.a.new"),
            *map(attribute, ("mttp.a.new", "mttp.a.b", "mttp.a.c", "mttp.a.d")),
        ],
    )
    before = {
        "0.1.0": frozenset({"mttp.a.old", "mttp.a.b"}),
        "0.2.0": frozenset({"mttp.a.old", "mttp.a.b", "mttp.a.c"}),
    }
    versions = yaml.safe_load(render(now))["versions"]
    expected = {"0.1.0": [], "0.2.0": ["mttp.a.c"], "0.3.0": ["mttp.a.d"]}

    assert expected == added(now, before=before, versions=versions)


def test_two_names_never_become_one():
    """
    In one version; that an older name and its successor name the same attribute is no merger.
    """
    merged = [attribute("mttp.a.one", "mttp.a.c"), attribute("mttp.a.two", "mttp.a.c"), attribute("mttp.a.c")]
    published = yaml.safe_load(render(registry("0.2.0", attributes=[*merged[:1], merged[2]])))

    with pytest.raises(UnusableInput, match=r"mttp\.a\.one and mttp\.a\.two became one name"):
        render(registry("0.2.0", attributes=merged))
    assert "mttp.a.two: mttp.a.c" in render(registry("0.3.0", attributes=merged), earlier=published)


def test_published_attributes_are_those_of_older_versions(tmp_path):
    """
    Oldest first by number; the version itself may still change.
    """
    for version in ("0.10.0", "0.9.0", "0.11.0"):
        (tmp_path / f"{version}.txt").write_text(f"mttp.of.{version}\n", encoding="utf-8")
    found = published(tmp_path, version="0.11.0")

    assert ["0.9.0", "0.10.0"] == list(found)
    assert frozenset({"mttp.of.0.9.0"}) == found["0.9.0"]

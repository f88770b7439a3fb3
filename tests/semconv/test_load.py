"""Reading the yaml files."""

import pytest
from tool.load import Document, UnusableInput, build, read


def written(folder, **files):
    """A registry's folder with these files, empty ones where none is given."""
    (folder / "model").mkdir()
    for name in ("manifest", "upstream"):
        (folder / f"{name}.yaml").write_text(files.pop(name, "{}"), encoding="utf-8")
    for name, text in files.items():
        (folder / "model" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def test_files_are_read_in_order_of_name(tmp_path):
    """
    The manifest and the allow-list come first, then the model's files by name.
    """
    documents = read(written(tmp_path, b="{}", a="{}"))
    expected = ["manifest.yaml", "upstream.yaml", "model/a.yaml", "model/b.yaml"]

    assert expected == [document.file for document in documents]


def test_empty_model_is_unusable(tmp_path):
    """
    A registry without a model is not an empty registry.
    """
    with pytest.raises(UnusableInput, match="no yaml file there"):
        read(written(tmp_path))


def test_missing_manifest_is_unusable(tmp_path):
    """
    A registry without a manifest has no identity.
    """
    (written(tmp_path, a="{}") / "manifest.yaml").unlink()

    with pytest.raises(UnusableInput, match=r"manifest\.yaml"):
        read(tmp_path)


def test_broken_yaml_is_unusable(tmp_path):
    """
    A file that is not YAML is named with the place where it breaks.
    """
    with pytest.raises(UnusableInput, match=r"(?s)a\.yaml.*line 2"):
        read(written(tmp_path, a="attributes:\n  - {key"))


def test_key_stated_twice_is_unusable(tmp_path):
    """
    A second `attributes:` in one file would hide the first, so it is refused.
    """
    with pytest.raises(UnusableInput, match="'attributes' is stated twice"):
        read(written(tmp_path, a="attributes: []\nspans: []\nattributes: []\n"))


def test_enum_value_defaults_to_its_id():
    """
    A member without a value is written on the wire as its id.
    """
    enum = {"members": [{"id": "red", "stability": "development", "brief": "Red."}]}
    body = {"key": "mttp.thing.kind", "type": enum, "stability": "development", "brief": "A kind."}
    registry = build([Document(file="model/a.yaml", content={"attributes": [body]})])
    (member,) = registry.attributes[0].members

    assert (member.value, registry.attributes[0].value_type) == ("red", "string")


def test_template_has_the_type_of_its_attributes():
    """
    A template's value type is that of each attribute below it, an array's brackets included.
    """
    body = {"key": "mttp.thing.n", "type": "template[int[]]", "stability": "development", "brief": "Numbers."}
    registry = build([Document(file="model/a.yaml", content={"attributes": [body]})])

    assert (registry.attributes[0].is_template, registry.attributes[0].value_type) == (True, "int[]")

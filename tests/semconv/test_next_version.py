"""A version that renames attributes, made as `semconv/README.md` says, reads this one's files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import released
import yaml

ROOT = Path(__file__).parents[2]
NEXT = "0.2.0"
RENAMED = {
    "mttp.episode.outcome": "mttp.episode.verdict",
    "mttp.faults": "mttp.problems",
    "mttp.metadata": "mttp.user",
    "mttp.run.seed": "mttp.run.start_seed",
    "mttp.step.reward": "mttp.step.gain",
    "mttp.token.data": "mttp.token.block",
    "mttp.run.id": "mttp.run.identity",
}
"""An enum, a list, a template, a text, a packed column, bytes, and what the resource has too."""
ADDED = {
    "key": "mttp.run.mood",
    "type": "string",
    "stability": "development",
    "brief": "Mood of the run.",
    "examples": ["calm"],
}
FILES = ("recording.jsonl", "recording.parquet", "collector.binpb")
DRIVER = """
import json, sys
import mttp.semconv.attributes as a
a.__dict__.update(json.loads(sys.argv[1]))  # what the code says after the rename
from pathlib import Path
import released
print(json.dumps(released.recordings(Path(sys.argv[2]), *sys.argv[3:])))
"""


def renamed(path: Path) -> None:
    """Rename in a model file as its README says: new definition, old one deprecated, references changed."""
    text = path.read_text(encoding="utf-8")
    for old, new in RENAMED.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w.]*\w)(?!\.<)", new, text)
    content = yaml.safe_load(text)
    deprecated = [
        {**attribute, "key": old, "deprecated": {"reason": "renamed", "renamed_to": attribute["key"]}}
        for attribute in content.get("attributes", [])
        for old, new in RENAMED.items()
        if attribute["key"] == new
    ]
    content["attributes"] = [*content.get("attributes", []), *deprecated]
    if path.name == "run.yaml":
        content["attributes"].append({**ADDED, "annotations": {"mttp": {"content": False}}})
    if path.name == "spans.yaml":
        content["spans"][0]["attributes"].append({"ref": ADDED["key"]})
    if not content["attributes"]:
        del content["attributes"]
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder to import the next version of mttp from."""
    folder = tmp_path_factory.mktemp("next")
    shutil.copytree(ROOT / "semconv", folder / "semconv", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "semconv" / "model").glob("*.yaml"):
        renamed(path)
    manifest = folder / "semconv" / "manifest.yaml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("https://mttp.dev/schemas/0.1.0", f"https://mttp.dev/schemas/{NEXT}"))
    (folder / "src" / "mttp").mkdir(parents=True)
    for entry in (ROOT / "src" / "mttp").iterdir():
        if entry.name not in ("semconv", "tables", "__pycache__"):
            (folder / "src" / "mttp" / entry.name).symlink_to(entry)
    for room in ("semconv", "tables"):
        shutil.copytree(ROOT / "src" / "mttp" / room, folder / "src" / "mttp" / room)
    for path in (folder / "src" / "mttp" / "tables").rglob("*.*"):
        if path.suffix in (".py", ".sql"):
            path.write_text(_renamed_columns(path.read_text(encoding="utf-8")), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(folder / "semconv" / "tool")], capture_output=True, text=True, check=False
    )
    assert (0, "") == (ran.returncode, ran.stderr), ran.stdout
    return folder


def _renamed_columns(text):
    """SQL with the new names of columns, which it types itself."""
    for old, new in RENAMED.items():
        text = re.sub(rf'"{re.escape(old)}(?=(?:\.json|\.number)?")', f'"{new}', text)
    return text


def test_the_schema_file_has_the_renames(package):
    """
    The new version's file states what became what, and repeats the version before.
    """
    schema = yaml.safe_load((package / "semconv" / "schemas" / f"{NEXT}.yaml").read_text(encoding="utf-8"))

    assert [NEXT, "0.1.0"] == list(schema["versions"])
    (change,) = schema["versions"][NEXT]["all"]["changes"]
    assert change["rename_attributes"]["attribute_map"] == RENAMED


def test_the_new_version_knows_what_it_added(package):
    """
    A new attribute is listed under its version, a renamed one is not.
    """
    text = (package / "src" / "mttp" / "semconv" / "versions.py").read_text(encoding="utf-8")
    found: dict[str, dict[str, object]] = {}
    exec(text, found)

    assert {"0.1.0": [], NEXT: [ADDED["key"]]} == found["ADDED"]


def test_the_next_version_reads_the_files_of_this_one(package):
    """
    Every kind of file that this version wrote gives the next one the same values, under the new names.
    """
    release = released.FOLDER / "0.1.0"
    constants = _constants()
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(constants), str(release), *FILES],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{package / 'src'}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert (0, "") == (ran.returncode, ran.stderr)
    expected = json.loads((release / "expected.json").read_text(encoding="utf-8"))

    assert len(constants) == len(RENAMED)
    assert {name: expected[name] for name in FILES} == json.loads(ran.stdout)


def _constants():
    """The constants of the renamed attributes, with their new names."""
    from mttp.semconv import attributes as a

    return {name: RENAMED[value] for name, value in vars(a).items() if RENAMED.get(str(value))}

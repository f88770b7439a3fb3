"""Included specs: from files, directories and installed packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from rewards.specimens import changed, load, write

from mttp.errors import SpecError
from mttp.rewards.difference import differences
from mttp.rewards.locking import changes, read_lock, write_lock
from mttp.rewards.spec import RewardSpec
from mttp.rewards.versions import constraint, version
from mttp.rewards.writing import to_yaml

GRADER = "def right(completion):\n    return {value}\n"


def put(path: str, *, name: str = "", number: str = "1.0.0", include: Any = (), value: float = 1.0) -> Path:
    """Write a spec of one component with its grader."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    (place.parent / "graders.py").write_text(GRADER.format(value=value))
    component = {"name": "right", "kind": "rubric", "use": "graders:right", "range": [0, 1]}
    document = {
        "mttp": "reward-spec/1",
        "name": name or place.stem,
        "version": number,
        "combine": "weighted_sum",
        "components": [component],
        "include": list(include),
    }
    place.write_text(to_yaml(document))
    return place


def part(spec: str, version: str | None = None, name: str = "inner", **fields: Any) -> dict[str, Any]:
    """Return an include as in a file."""
    return {"spec": spec, "as": name, **({"version": version} if version else {}), **fields}


def test_an_included_spec_is_a_component():
    """
    It has its own graders, and a name, a weight and a range here.
    """
    put("shared/format.yaml", value=0.5)
    spec = RewardSpec.load(
        put("main.yaml", include=[part("shared/format.yaml", "^1.0", "format", weight=0.2)])
    )

    result = spec.score(completion="")

    assert (1.1, 0.1) == (result.value, pytest.approx(result.components["format"].contribution))
    assert ((0.0, 1.2), (0.0, 1.0)) == (spec.range, spec.parts[1].range)


def test_what_is_included_is_part_of_the_identity():
    """
    Its rules are in the digest, its code in that of the code.
    """
    main = put("main.yaml", include=[part("shared/format.yaml")])
    inner = put("shared/format.yaml")
    before = RewardSpec.load(main).identity
    put("shared/format.yaml", value=0.5)
    recoded = RewardSpec.load(main).identity
    inner.write_text(inner.read_text().replace("weighted_sum", "minimum"))
    ruled = RewardSpec.load(main).identity

    assert before.sha256 == recoded.sha256 != ruled.sha256
    assert before.code_sha256 != recoded.code_sha256 == ruled.code_sha256


def test_of_several_versions_in_a_directory_the_newest_that_fits_is_taken():
    """
    `shared/format` is the spec named `format` in a file of `shared`.
    """
    for number in ("1.1.0", "1.10.0", "1.9.0", "2.0.0", "1.11.0-rc.1"):
        put(f"shared/format-{number}.yaml", name="format", number=number)
    spec = RewardSpec.load(put("main.yaml", include=[part("shared/format", "^1.0")]))

    assert "1.10.0" == spec.included["inner"].version


@pytest.mark.parametrize(
    ("include", "words"),
    [
        (part("shared/nothing.yaml"), "no spec 'shared/nothing.yaml' is found"),
        (part("mian.yaml"), "did you mean 'main.yaml'?"),
        (part("shared/format.yaml", "^2.0"), "is 1.0.0, and the include requires ^2.0"),
        (part("shared/format.yaml", "newest"), "'newest' is not a version constraint"),
    ],
    ids=["missing", "misspelled", "other version", "no version"],
)
def test_what_can_not_be_included_is_reported_with_its_line(include, words):
    """
    The error has file and line of the include.
    """
    put("shared/format.yaml")

    with pytest.raises(SpecError, match=r"^main\.yaml:\d+:\d+: ") as caught:
        RewardSpec.load(put("main.yaml", include=[include]))

    assert words in str(caught.value)


def test_a_loop_of_includes_shows_the_chain():
    """
    The error has the chain from the loaded spec to the repeated one.
    """
    put("c.yaml", include=[part("a.yaml")])
    put("b.yaml", include=[part("c.yaml")])
    put("a.yaml", include=[part("b.yaml")])

    with pytest.raises(
        SpecError, match=r"form a cycle .a\.yaml includes b\.yaml includes c\.yaml includes a\.yaml."
    ):
        RewardSpec.load("a.yaml")


def test_a_fault_deep_down_shows_the_chain():
    """
    The error has the faulty file and the chain of includes.
    """
    put("b.yaml", include=[part("nothing.yaml")])
    put("a.yaml", include=[part("b.yaml")])

    with pytest.raises(SpecError, match=r"^b\.yaml:.*no spec.*\(a\.yaml includes b\.yaml\)"):
        RewardSpec.load("a.yaml")


def test_one_name_at_two_versions_is_a_conflict():
    """
    The error has both chains of includes.
    """
    put("one/format.yaml", number="1.0.0")
    put("two/format.yaml", number="2.0.0")
    put("style.yaml", include=[part("two/format.yaml")])
    main = put(
        "main.yaml", include=[part("one/format.yaml", None, "format"), part("style.yaml", None, "style")]
    )

    with pytest.raises(SpecError) as caught:
        RewardSpec.load(main)

    assert "format is included as 1.0.0 (main includes format)" in str(caught.value)
    assert "as 2.0.0 (main includes style includes format)" in str(caught.value)


def test_the_same_spec_may_be_included_twice():
    """
    Under two names, at one version.
    """
    put("format.yaml")
    spec = RewardSpec.load(
        put("main.yaml", include=[part("format.yaml", None, "a"), part("format.yaml", None, "b")])
    )

    assert ["right", "a", "b"] == [one.name for one in spec.parts]


ENTRY_POINTS = "[mttp.reward_specs]\nacme = acme_rewards.specs\nform = acme_rewards.specs:format\n"


def wheel() -> Path:
    """A wheel with two kinds of entry points."""
    put("wheel/acme_rewards/specs/format.yaml", number="1.4.0", value=0.5)
    put("wheel/acme_rewards/specs/tone.yaml", number="0.1.0", value=0.5)
    Path("wheel/acme_rewards/__init__.py").write_text("raise SystemExit('imported')\n")
    info = "acme_rewards-1.0.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: acme-rewards\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    path = Path("acme_rewards-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(Path("wheel").rglob("*.*")):
            archive.write(file, file.relative_to("wheel"))
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in [*archive.namelist(), f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)
    return path


@pytest.fixture
def installed(monkeypatch) -> None:
    """The wheel, installed by pip into its own directory."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        "site",
    ]
    subprocess.run([*command, "--disable-pip-version-check", str(wheel())], check=True, capture_output=True)
    monkeypatch.syspath_prepend(str(Path("site").resolve()))


@pytest.mark.parametrize(
    ("spec", "expected"), [("form", "format"), ("acme/tone", "tone"), ("acme/format", "format")]
)
@pytest.mark.usefixtures("installed")
def test_specs_of_installed_packages_are_included_by_name(spec, expected):
    """
    An entry point names one spec or a package of specs; the package is not imported.
    """
    found = RewardSpec.load(put("main.yaml", include=[part(spec)]))

    assert expected == found.included["inner"].name
    assert 1.5 == found.score(completion="").value


@pytest.mark.usefixtures("installed")
def test_an_installed_spec_brings_its_code_where_its_package_is_trusted():
    """
    Trust covers the entry point's package; reading and digests need none.
    """
    place = put("mine/main.yaml", include=[part("form")])
    spec = RewardSpec.load(place)
    assert spec.code_sha256

    with pytest.raises(SpecError, match=r"/specs are not trusted: .* --trust-module acme_rewards\.specs or "):
        spec.score(completion="")

    for trust in ("acme_rewards", ["acme_rewards.specs"], True):
        assert 1.5 == RewardSpec.load(place, trust=trust).score(completion="").value
    with pytest.raises(SpecError, match="are not trusted"):
        RewardSpec.load(place, trust="graders").score(completion="")


@pytest.mark.parametrize(
    "spec", ["../other/y.yaml", "link/y.yaml", "../mine/../other/y", "venv/lib/site-packages/acme/y.yaml"]
)
def test_an_included_spec_elsewhere_brings_no_code(spec):
    """
    Only code in or below the loaded spec's directory is trusted, with links and `..` resolved.
    """
    put("other/y.yaml")
    put("mine/venv/lib/site-packages/acme/y.yaml")
    Path("mine/link").symlink_to("../other")
    for folder in ("other", "mine/venv/lib/site-packages/acme"):
        Path(folder, "graders.py").write_text("raise SystemExit('imported')\n")
    place = put("mine/main.yaml", include=[part(spec)])

    with pytest.raises(SpecError, match=r"y\.yaml:\d+:\d+: the modules in .* are not trusted: "):
        RewardSpec.load(place).score(completion="")


def test_all_trust_is_that_of_the_whole_spec():
    """
    `trust=True` covers included specs elsewhere.
    """
    put("other/y.yaml", value=0.5)
    place = put("mine/main.yaml", include=[part("../other/y.yaml")])

    assert 1.5 == RewardSpec.load(place, trust=True).score(completion="").value


def test_includes_that_multiply_are_refused():
    """
    Nine specs that include the next ten times would be 10**9 specs.
    """
    for number in range(9):
        again = [part(f"s{number + 1}.yaml", name=f"i{index}") for index in range(10)]
        place = put(f"s{number}.yaml", include=again)
    put("s9.yaml")

    with pytest.raises(SpecError, match="more than 500 specs are included"):
        RewardSpec.load("s0.yaml")
    assert "s8" == RewardSpec.load(place).name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pipe.yaml", "pipe.yaml: can't read the file: it is a pipe, not a regular file"),
        ("/dev/zero", "/dev/zero: can't read the file: it is a device, not a regular file"),
        ("a" * 5000, r"main\.yaml:\d+:\d+: can't look up the spec a{60}: File name too long"),
        ("a\0b", r"main\.yaml:\d+:\d+: no spec"),
    ],
    ids=lambda part: part[:10],
)
def test_what_is_no_file_is_not_included(name, words):
    """
    The error has its kind, and it is not opened.
    """
    os.mkfifo("pipe.yaml")

    with pytest.raises(SpecError, match=words):
        RewardSpec.load(put("main.yaml", include=[part(name)]))


@pytest.mark.usefixtures("installed")
def test_an_installed_spec_that_is_misspelled_names_the_nearest():
    """
    The suggestion is a known entry point.
    """
    with pytest.raises(SpecError, match="did you mean 'form'"):
        RewardSpec.load(put("main.yaml", include=[part("fom")]))


@pytest.mark.parametrize(
    ("text", "takes", "refuses"),
    [
        ("^1.2", ["1.2.0", "1.9.3"], ["1.1.9", "2.0.0", "2.0.0-rc.1"]),
        ("^0.2", ["0.2.0", "0.2.9"], ["0.3.0", "1.0.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("~1.2", ["1.2.0", "1.2.9"], ["1.3.0"]),
        ("~1.2.3", ["1.2.3", "1.2.9"], ["1.2.2", "1.3.0"]),
        ("~1", ["1.0.0", "1.9.0"], ["2.0.0"]),
        (">=1.2, <2", ["1.2.0", "1.99.0"], ["2.0.0", "1.1.0"]),
        (">1.2", ["1.3.0"], ["1.2.9"]),
        ("<=1.2", ["1.2.9"], ["1.3.0"]),
        ("1.2.0", ["1.2.0"], ["1.2.1"]),
        ("=1.2", ["1.2.0", "1.2.7"], ["1.3.0"]),
        (">=1.2.0-rc.2", ["1.2.0-rc.10", "1.2.0"], ["1.2.0-rc.1"]),
        ("^1.2.0-rc.1", ["1.2.0-rc.1", "1.2.0", "1.9.0-rc.1"], ["1.2.0-alpha", "2.0.0-rc.1", "2.0.0"]),
        ("~1.2.0-rc.1", ["1.2.0-rc.1", "1.2.9"], ["1.3.0-rc.1", "1.3.0"]),
        (">=1.2.0-rc.1, <2", ["1.2.0-rc.1", "1.99.0"], ["2.0.0-rc.1", "2.0.0"]),
        ("<=1.2.0-rc.1", ["1.2.0-alpha", "1.1.0"], ["1.2.0"]),
        ("^0", ["0.0.1", "0.9.0"], ["1.0.0"]),
    ],
)
def test_constraints_take_the_versions_they_say(text, takes, refuses):
    """
    As in other package managers; pre-releases only if one is named.
    """
    wanted = constraint(text)

    assert [(one, True) for one in takes] == [(one, wanted.takes(one)) for one in takes]
    assert [(one, False) for one in refuses] == [(one, wanted.takes(one)) for one in refuses]


@pytest.mark.parametrize(
    "text", ["", "1,", ">=1,,<2", "~>1", "^1.x", "1.2.0-rc.", "1.2.0-a..b", "\uff11.2.0", "v1"]
)
def test_what_is_no_constraint_is_refused_with_examples(text):
    """
    No part of an invalid constraint is ignored.
    """
    with pytest.raises(
        ValueError,
        match=re.escape(f"{text!r} is not a version constraint; write it as ^1.2, ~1.2, >=1.2,<2 or 1.2.0"),
    ):
        constraint(text)


@pytest.mark.parametrize("text", ["1", "1.2.3.4", "v1.2.0", "1.2-rc", "1.2.0-a..b", "\uff11.2.0", "1.2.0\n"])
def test_what_is_no_version_is_refused_with_an_example(text):
    """
    Digits are ASCII, and no pre-release part is empty.
    """
    with pytest.raises(ValueError, match=r"is not a version; write two or three numbers, such as 1\.2\.0"):
        version(text)


def test_versions_are_ordered_as_semantic_versions_are():
    """
    By numbers, with a pre-release before its release.
    """
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.2.0", "1.10.0"]
    mixed = ["1.10.0", "1.0.0-beta.11", "1.0.0", "1.0.0-alpha", "1.2.0", "1.0.0-beta.2", "1.0.0-alpha.1"]

    assert ordered == sorted(mixed, key=version)


def test_a_version_of_two_numbers_ends_in_zero():
    """
    1.2 is 1.2.0 in the identity, comparisons, constraints and locks.
    """
    short, full = (
        load(name, spec=changed("1.2.0", version)) for name, version in (("a", '"1.2"'), ("b", "1.2.0"))
    )
    write_lock(full)

    assert ("1.2.0", full.identity) == (short.version, short.identity)
    assert [] == differences(short, full)
    assert [] == list(changes(read_lock(full.path), short))
    assert constraint("^1.2").takes("1.2")
    assert version("1.2") == version("1.2.0") < version("1.2.1")


def test_an_included_version_of_two_numbers_fits_its_lock():
    """
    The locked version is chosen in either spelling.
    """
    include = 'include: [{spec: "shared/style", version: "^1.0", as: style}]\ncombine:'
    main = write(spec=changed("combine:", include))
    Path("specs/shared").mkdir()
    inner = changed("gsm8k", "style")
    Path("specs/shared/old.yaml").write_text(changed("1.2.0", '"1.0"', inner))
    write_lock(RewardSpec.load(main))
    Path("specs/shared/new.yaml").write_text(changed("1.2.0", "1.1.0", inner))

    assert "1.0.0" == RewardSpec.load(main).included["style"].version

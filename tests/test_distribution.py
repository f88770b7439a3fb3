"""What is published besides the code: the conda recipe, the classifiers, what a wheel and an sdist hold."""

import re
import sys
from pathlib import Path

import pytest
import yaml

import mttp

if sys.version_info < (3, 11):
    tomllib = pytest.importorskip("tomli")
else:
    import tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def recipe():
    """The recipe, with its version filled in and pip's Python left as a word."""
    text = (ROOT / ".ci" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    (version,) = re.findall(r'\{% set version = "(.+)" %\}', text)
    text = re.sub(r"^\{%.*%\}$", "", text, flags=re.MULTILINE)
    return yaml.safe_load(text.replace("{{ version }}", version).replace("{{ PYTHON }}", "python"))


def requirement(text):
    """The name and the bounds of a requirement, whose bounds pip and conda write in any order."""
    name, bounds = re.fullmatch(r"([\w.-]+(?:\[\w+\])?)\s*(.*)", text.partition(";")[0].strip()).groups()
    return name, frozenset(filter(None, bounds.replace(" ", "").split(",")))


def test_the_sdist_leaves_nothing_out_that_its_makefile_and_tests_need():
    """
    `make dist` and the tests here read files of .ci.
    """
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]

    assert "exclude" not in sdist["targets"].get("sdist", {})


def test_the_recipe_is_of_this_version(recipe):
    """
    Version, summary, licence and command are those of the project.
    """
    assert (PROJECT["name"], PROJECT["version"]) == (recipe["package"]["name"], recipe["package"]["version"])
    assert mttp.__version__ == recipe["package"]["version"]
    assert (PROJECT["description"], PROJECT["license"]) == (
        recipe["about"]["summary"],
        recipe["about"]["license"],
    )
    assert [f"{name} = {target}" for name, target in PROJECT["scripts"].items()] == recipe["build"][
        "entry_points"
    ]


def test_the_recipe_has_the_dependencies_of_the_project(recipe):
    """
    Each with its bounds, and one Python for all: nothing is compiled.
    """
    run = dict(map(requirement, recipe["requirements"]["run"]))
    expected = dict(map(requirement, PROJECT["dependencies"]))
    expected["python"] = requirement(f"python {PROJECT['requires-python']}")[1]

    assert "python" == recipe["build"]["noarch"]
    assert expected == run


def test_the_recipe_constrains_packages_as_the_extras_do(recipe):
    """
    A bound that a constraint states is the extra's.
    """
    extras = {requirement(one) for extra in PROJECT["optional-dependencies"].values() for one in extra}

    assert set(map(requirement, recipe["requirements"]["run_constrained"])) <= extras


def test_the_extra_for_language_models_is_small():
    """
    It brings no tracker of experiments, no plots, no statistics of raters and no engines of clusters.
    """
    extras, brought, waiting = PROJECT["optional-dependencies"], set(), ["llm"]
    while waiting:
        for one in extras[waiting.pop()]:
            nested = re.fullmatch(r"mttp\[(.*)\]", one)
            waiting += nested[1].split(",") if nested else []
            brought.add(requirement(one)[0])

    assert {"typer", "pyarrow", "scipy", "pyyaml", "openai", "starlette"} <= brought
    assert not brought & {"wandb", "scikit-learn", "matplotlib", "sqlglot"}


def test_the_site_keeps_a_folder_for_each_version():
    """
    The site has the chooser of versions for which `make docs-version` writes.
    """
    site = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")

    assert "provider: mike" in site


def test_classifiers_name_the_pythons_that_are_checked():
    """
    Each Python for which all extras are resolved is a classifier, from the oldest that is supported on.
    """
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    (checked,) = re.findall(r"\$\{\*:-([\d. ]+)\}", (ROOT / ".ci" / "resolve").read_text(encoding="utf-8"))

    assert named == checked.split()
    assert f">={named[0]}" == PROJECT["requires-python"]

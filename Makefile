# `make demo` and `make test` are the whole set-up: Python 3.10 or later and make are all they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
unexport PYTHONDONTWRITEBYTECODE  # else each of the tests' processes compiles all that it imports again

.PHONY: viewer viewer-check test-viewer help demo test test-long soak fuzz test-integrations lint types docs docs-version pictures dist dist-check audit sbom reproducible fixtures semconv semconv-check bench bench-install clean

help:  ## Say what there is.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "mttp needs Python 3.10 or later: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip --disable-pip-version-check install --quiet uv
	@touch $@

$(VENV)/.demo: $(BIN)/uv pyproject.toml
	$(INSTALL) --editable '.[all]'
	@touch $@

$(VENV)/.dev: $(BIN)/uv pyproject.toml
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## Train a small agent, record its episodes, read them back.
	@$(BIN)/mttp demo

test: $(VENV)/.dev  ## Run the tests.
	$(BIN)/python -m pytest -n auto

test-long: $(VENV)/.dev  ## Run the tests that take minutes: damaged files by the thousand, kills, 300 examples of each property.
	$(BIN)/python -m pytest -m "long or hypothesis" --hypothesis-profile=long -s

soak: $(VENV)/.dev  ## Record for two hours while everything fails, and account for every span; ARGS="--seconds 300" for less.
	$(BIN)/python benchmarks/soak $(ARGS)

fuzz: $(VENV)/.dev  ## Give mutated inputs to every reader, listener and loader for a minute, and awkward values to every call.
	$(BIN)/python tests/fuzzing $(ARGS)
	MTTP_ALL_VALUES=1 $(BIN)/python -m pytest -n auto tests/test_awkward_values.py

viewer/node_modules/.package-lock.json: viewer/package-lock.json
	cd viewer && npm ci --silent

viewer: viewer/node_modules/.package-lock.json  ## Build the front end of reports and live pages; needs Node.js and npm.
	cd viewer && npm run --silent check && npm run --silent build

viewer-check: viewer  ## Check that the front end in the package is the one that is built.
	git diff --exit-code --stat -- src/mttp/viewing/assets

test-viewer: $(VENV)/.dev viewer/node_modules/.package-lock.json  ## Run the tests of the front end; needs Chromium, Node.js and npm.
	$(BIN)/python -m pytest -m browser tests/viewing tests/pages

test-integrations:  ## Run the tests of libraries that need an environment of their own: newest and oldest versions.
	PYTHON=$(PYTHON) .ci/integrations

lint: $(VENV)/.dev  ## Check style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## Check types.
	$(BIN)/mypy
	MYPYPATH=semconv $(BIN)/mypy --strict --package tool
	$(BIN)/mypy --strict examples
	$(BIN)/mypy --strict tests/typing/api.py
	$(BIN)/pyright

docs: $(VENV)/.dev  ## Build the documentation site into site/.
	$(INSTALL) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml

pictures: $(VENV)/.dev  ## Make the README's pictures; Phoenix's needs `phoenix` and `chromium`.
	$(BIN)/python docs/site/pictures.py

fixtures: $(VENV)/.dev  ## Write the files of a release that later versions must read: make fixtures VERSION=0.1.0.
	$(BIN)/python tests/released.py $(VERSION)

dist: $(VENV)/.dev  ## Build the wheel and the sdist into dist/, and check both on a clean machine.
	.ci/dist

dist-check: $(VENV)/.dev  ## Check that each extra can be installed on each Python; takes minutes, needs no other Python.
	.ci/resolve

docs-version: $(VENV)/.dev  ## Commit the site of this version to the local branch gh-pages: make docs-version VERSION=0.1.
	$(INSTALL) --editable '.[docs]'
	PATH=$(abspath $(BIN)):$$PATH NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --config-file docs/site/mkdocs.yml --update-aliases $(VERSION) latest

semconv: $(VENV)/.dev  ## Generate everything that follows from the registry.
	$(BIN)/python semconv/tool

semconv-check: $(VENV)/.dev  ## Check that what is committed follows from the registry.
	$(BIN)/python semconv/tool --check

bench-install: $(VENV)/.dev  ## Install what the benchmarks compare with, each in an environment of its own.
	$(INSTALL) orjson
	$(BIN)/python benchmarks --install

bench: bench-install  ## Measure all rows and write them into docs/benchmarks.md; some by ARGS="caller --rounds 5".
	$(BIN)/python benchmarks --json .bench/figures.json --docs docs/benchmarks.md $(ARGS)

RESOLVED := $(BIN)/uv pip compile --quiet --no-header --no-annotate pyproject.toml

audit: $(BIN)/uv  ## Compare what `mttp[all]` resolves to with PyPI's list of vulnerabilities; needs PyPI itself.
	@mkdir -p dist
	$(RESOLVED) --extra all --output-file dist/all.txt
	$(BIN)/uv tool run --from 'pip-audit>=2.9,<3' pip-audit --strict --vulnerability-service pypi --no-deps --disable-pip --requirement dist/all.txt

sbom: $(BIN)/uv  ## Write what the core resolves to into dist/mttp.cdx.json, as CycloneDX.
	@mkdir -p dist
	$(RESOLVED) --output-file dist/core.txt
	$(BIN)/uv venv --quiet --clear dist/core
	$(BIN)/uv pip install --quiet --python dist/core/bin/python --requirement dist/core.txt
	$(BIN)/uv tool run --from 'cyclonedx-bom>=7,<8' cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --output-file dist/mttp.cdx.json dist/core/bin/python
	rm -rf dist/core

reproducible: $(BIN)/uv  ## Check that two builds of the wheel have the same bytes.
	.ci/reproducible $(BIN)/uv

clean:  ## Forget the environment and the caches.
	rm -rf $(VENV) site .integrations .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis

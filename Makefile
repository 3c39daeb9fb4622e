# make demo   everything on one machine, in the browser
# make test   the tests; what is missing on this machine is skipped with its reason
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint lock docs bench bench-alerts

setup: $(VENV)/.ready

$(VENV)/.ready: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: setup
	$(BIN)/upbot demo $(ARGS)

test: setup
	$(BIN)/pytest -n auto --maxprocesses 8 $(ARGS)

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: setup
	$(BIN)/python docs/make.py

lock:
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--no-annotate --no-header -q pyproject.toml --extra charts -o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--no-annotate --no-header -q pyproject.toml --extra charts --group dev -o requirements-dev.lock

bench-alerts: setup
	$(BIN)/pip install --quiet --disable-pip-version-check 'numpy>=2.0'
	$(BIN)/python tests/benchmarks/bench_alerts.py --write $(ARGS)

bench: setup
	$(BIN)/python tests/benchmarks/bench_probe.py
	$(BIN)/python -m tests.benchmarks.bench_transports
	$(BIN)/python tests/benchmarks/bench_reading.py

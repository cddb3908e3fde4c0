# Each target creates all that it needs: a virtual environment in .venv with the project and its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint bench clean

demo: $(VENV)/.ready
	$(BIN)/stallbook demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2

slow: $(VENV)/.ready
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/partition.py && $(BIN)/python benchmarks/recorder.py

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q -e ".[all]" --group dev
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

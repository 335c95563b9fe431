# `make demo` and `make test` need Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV   := .venv
PEER   := .venv-nova
RELEASE := .venv-release
comma  := ,
BIN    := $(VENV)/bin
# mypy refuses a checkout whose folder is no identifier: it sees it as "moorage".
TYPES  := $(VENV)/types

# Images of containers often set it; then each worker of pytest, and each of the processes
# that tests start, compiles the code again.
unexport PYTHONDONTWRITEBYTECODE

# Two workers more than there are cores: many tests wait for a process or a thread.
WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# What needs neither a server nor nova, a few seconds each.
QUICK  := tests/filters tests/objects tests/scheduler/conf tests/scheduler/hosts \
          tests/scheduler/placement/test_query.py tests/weighers tests/wire
# $(call install,environment,what,packages): say what is done, and keep pip's output.
# setuptools warns of folders named like the package; here they are the package.
define install
@echo "$(1): installing $(2); this takes about a minute ..."
@$(PYTHON) -m venv $(1)
@start=$$(date +%s); export PYTHONWARNINGS=ignore PIP_ROOT_USER_ACTION=ignore; \
for packages in "--upgrade pip" "$(3)"; do \
    $(1)/bin/python -m pip install --disable-pip-version-check $$packages \
        > $(1)/pip.log 2>&1 || { tail -n 20 $(1)/pip.log; exit 1; }; \
done; \
echo "$(1): installed in $$(($$(date +%s) - start)) s"
endef

.PHONY: venv peer demo demo-page quick test test-deep test-all faults coverage check lint types bench docs man release screenshots clean

venv: $(VENV)/.done
$(VENV)/.done: setup.cfg pyproject.toml
	$(call install,$(VENV),Moorage and its development tools,-e .[dev])
	@mkdir -p $(TYPES) && ln -sfn ../.. $(TYPES)/moorage
	@touch $@

# nova 34, the peer of the interop tests and the benchmarks, in an environment of its own.
peer: $(PEER)/.done
$(PEER)/.done: setup.cfg pyproject.toml tests/interop/peer-requirements.txt
	$(call install,$(PEER),nova 34 for tests and benchmarks,-r tests/interop/peer-requirements.txt -e .[embedded])
	@touch $@

demo: venv
	$(BIN)/python -m examples.demo

# PAGE_PORT=8790 chooses the port; otherwise any free one.
demo-page: venv
	$(BIN)/python -m examples.demo --page $(PAGE_PORT)

quick: venv
	$(PYTEST) -q --hypothesis-profile quick -p no:schemathesis \
	    -m "not broker and not browser and not database and not deep \
	        and not kafka and not memcached" $(QUICK) $(PYTEST_ARGS)

test: venv
	$(PYTEST) -m "not deep" $(PYTEST_ARGS)

# Property tests run here too, with many more examples.
test-deep: venv peer
	$(PYTEST) -m "deep or hypothesis" --hypothesis-profile deep $(PYTEST_ARGS)

# Every test once, as in CI: servers are started once, and no worker waits for the others
# between `test` and `test-deep`.
test-all: venv peer
	$(PYTEST) --hypothesis-profile deep $(PYTEST_ARGS)

# Seeds of simulated schedulers, faults and kills on a model of Placement: new ones for
# each commit, for so many seconds on each core. Prints requests; a failure has its seed.
SECONDS ?= 600
faults: venv
	MOORAGE_FAULTS_SECONDS=$(SECONDS) $(BIN)/python -m pytest -n $$(nproc) -q -rP --show-capture=stdout \
	    tests/simulation -k "seeds_of_the_model or failed_before" $(PYTEST_ARGS)

# Lines of the product that `make test` runs, in all processes; takes about twice as long.
coverage: venv
	$(PYTEST) -q -m "not deep" --cov --cov-report=term $(PYTEST_ARGS)

check: lint types test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --config .importlinter

types: venv
	cd $(TYPES) && ../bin/python -m mypy --config-file moorage/pyproject.toml \
	    -p moorage.agent -p moorage.bench -p moorage.conductor -p moorage.filters -p moorage.objects \
	    -p moorage.scheduler -p moorage.simulator -p moorage.testing -p moorage.tests \
    -p moorage.weighers

bench: venv peer
	$(BIN)/python -m bench

# oslo.service warns of eventlet, which is not used.
SPHINX := $(BIN)/python -W ignore -m sphinx -q -W -d doc/_build/doctrees
docs: venv
	$(SPHINX) -b html doc doc/_build/html

# Man pages, where setup.cfg has them installed from; `make release` builds them.
man: venv
	$(SPHINX) -b man doc etc/man

# Sdist and wheel of the commit at HEAD, with release notes, SBOM and licences, in dist/.
# It ends with `make test` in the sdist; SDIST_TESTS selects some of those tests.
release: $(RELEASE)/.done
	.ci/release $(RELEASE)
$(RELEASE)/.done: setup.cfg pyproject.toml
	$(call install,$(RELEASE),the tools of a release,-e .[docs$(comma)release])
	@touch $@

# Needs Chromium.
screenshots: venv
	$(BIN)/python -m examples.demo.screenshots doc/images

clean:
	rm -rf $(VENV) $(PEER) $(RELEASE) build dist doc/_build etc/man *.egg-info
	rm -rf .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

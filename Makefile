# Everything a newcomer needs. Only Python 3.11+, make and git have to be there;
# `make demo` and `make test` do the rest of the set-up themselves.

VENV    := .venv
PY      := $(VENV)/bin/python
LOCKED  := $(VENV)/.locked
STAMP   := $(VENV)/.ready
# No package arrives past the lock: nothing is resolved, nothing is built apart.
PIP     := $(PY) -m pip --disable-pip-version-check install -qq --no-deps
# Tests wait for programs, limits and syncs as long as they compute: two a core keep it busy.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
UV      ?= uv
RESOLVE := $(UV) pip compile pyproject.toml --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet
# The frameworks that Paddock comes to; NAME=deepagents for one of them.
NAME    := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tests/frameworks/*/test_*.py)))))
TORTURE_SECONDS ?= 60
# A worker that has nothing left to do takes tests of another; neighbours share what was made for them.
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist worksteal
FRAMEWORK_PIP = $(PY) -m pip --python $(@D)/bin/python --disable-pip-version-check install -qq --no-compile
# Without compiled files every program that a test starts is compiled again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# --- environment --------------------------------------------------------------

.PHONY: env
env: $(STAMP) ## the environment in .venv, from requirements.lock

# Made again when what it is made from changes; otherwise this costs nothing.
$(LOCKED): requirements.lock scripts/find-python
	@echo "making $(VENV) (some twenty seconds)" >&2
	@python=$$(sh scripts/find-python $(PYTHON)) \
	  && { "$$python" -m venv --clear $(VENV) \
	  || { echo "error: $$python cannot make an environment; a distribution may keep that in a package of its own (python3-venv)" >&2; exit 5; }; }
	@$(PIP) --require-hashes --requirement requirements.lock
	@touch $@

$(STAMP): $(LOCKED) pyproject.toml
	@$(PIP) --no-build-isolation --editable .
	@touch $@

.PHONY: lock
lock: ## resolve the dependencies again, and those of NAME (needs uv)
	@command -v $(UV) >/dev/null || { echo "error: make lock needs uv; name it with UV=/path/to/uv" >&2; exit 5; }
	$(RESOLVE) --group dev --output-file requirements.lock
	for name in $(NAME); do \
	  $(RESOLVE) --extra $$name --group $$name --output-file requirements/$$name.lock || exit; done

# --- use ----------------------------------------------------------------------

.PHONY: demo
demo: $(STAMP) ## the tour, on this repository
	@$(VENV)/bin/paddock demo

# --- checks -------------------------------------------------------------------

.PHONY: check
check: lint types layers ## lint, types and layers

.PHONY: lint
lint: $(STAMP)
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check . || { echo "error: not formatted; run: make format" >&2; exit 1; }

.PHONY: types
types: $(STAMP)
	@$(VENV)/bin/basedpyright

.PHONY: layers
layers: $(STAMP)
	@$(VENV)/bin/lint-imports --no-cache

.PHONY: format
format: $(STAMP) ## format the code and mend what can be mended
	@$(VENV)/bin/ruff check --quiet --fix-only .
	@$(VENV)/bin/ruff format --quiet .

.PHONY: test
test: $(STAMP) ## every test
	@$(PYTEST) tests

.PHONY: unit
unit: $(STAMP) ## the unit tests alone
	@$(PYTEST) tests/unit

.PHONY: coverage
coverage: $(STAMP) ## what the tests reach, by line and branch
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest tests
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

.PHONY: clients
clients: $(STAMP) ## drive the real clients, installed with npm
	@.ci/clients

.PHONY: frameworks
frameworks: frameworks-env ## each framework's own tests of our integration (NAME=deepagents: of one)
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(NAME:%=framework-%)

.PHONY: frameworks-newest
frameworks-newest: $(STAMP) ## the same, with the newest versions in place of the lock's
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(NAME:%=framework-newest-%)

# An environment each, since they do not all resolve together.
.PHONY: frameworks-env
frameworks-env: $(STAMP)
	@$(MAKE) --no-print-directory -j 3 $(NAME:%=.frameworks/%/.ready)

# A framework's warnings are its own business. PLAIN_USER=1: as one, on a copy of this tree.
framework-%: .frameworks/%/.ready
	@echo "== $*"
	@$(if $(PLAIN_USER),,$(VENV)/bin/basedpyright --pythonpath $(<D)/bin/python \
	  --project tests/frameworks/pyrightconfig.json \
	  src/paddock/integrations/$(*:newest-%=%)*.py)
	@$(if $(PLAIN_USER),VENV=$(<D) scripts/test-as-plain-user,$(<D)/bin/python -m pytest) \
	  -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function \
	  -o filterwarnings=default tests/frameworks/$(*:newest-%=%)

.PRECIOUS: .frameworks/%/.ready
.frameworks/%/.ready: requirements/%.lock | $(STAMP)
	@$(PY) -m venv --clear --without-pip $(@D)
	@$(FRAMEWORK_PIP) --no-deps --require-hashes --requirement $<
	@$(FRAMEWORK_PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.frameworks/newest-%/.ready: pyproject.toml always | $(STAMP)
	@$(PY) -m venv --clear --without-pip $(@D)
	@$(FRAMEWORK_PIP) --group $* --editable ".[$*]"
	@touch $@

.PHONY: always
always:

.PHONY: mutants
mutants: $(STAMP) ## break each guarantee on purpose; its tests must notice
	@$(PY) tests/mutants/run.py

.PHONY: torture
# Five thousand examples of one property may take longer than what counts as a hang elsewhere.
torture: $(STAMP) ## property, fault and kernel tests, long
	@HYPOTHESIS_PROFILE=torture PADDOCK_TORTURE_SECONDS=$(TORTURE_SECONDS) $(PYTEST) \
		-o faulthandler_timeout=0 tests/property tests/fault tests/kernel

.PHONY: console-pictures
console-pictures: $(STAMP) ## pictures of the console, for docs/images/console
	@PYTHONPATH=. $(PY) tests/web_pages/pictures.py docs/images/console

.PHONY: reference
reference: $(STAMP) ## write docs/reference/ from the code
	@$(PY) scripts/make_reference.py

.PHONY: wheel
wheel: $(STAMP) ## build the package and try it in a clean environment of PYTHON
	@sh scripts/try-wheel "$$(sh scripts/find-python $(PYTHON))" $(PY)

.PHONY: session
session: $(STAMP) ## draw docs/images/session.svg from a session that really runs
	@$(PY) scripts/make_session.py

.PHONY: walks
walks: $(STAMP) ## trace what a call, an event and an install pass, and write docs/architecture.md
	@$(PY) scripts/trace_walks.py --write docs/architecture.md

.PHONY: site
site: .site/.ready ## the documents as a site in site/, every link looked at
	@NO_MKDOCS_2_WARNING=1 .site/bin/mkdocs build --quiet --strict --site-dir site

.site/.ready: packaging/docs.lock | $(STAMP)
	@$(PY) -m venv --clear .site
	@.site/bin/python -m pip --disable-pip-version-check install -qq --no-deps --require-hashes --requirement $<
	@touch $@

.PHONY: bench
bench: $(STAMP) ## measure, and write docs/performance.md
	@$(PY) bench/page.py --write docs/performance.md

.PHONY: clean
clean: ## remove what the other targets made
	@rm -rf $(VENV) .site .frameworks site build dist htmlcov .coverage .coverage.* .hypothesis .pytest_cache .ruff_cache
	@find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

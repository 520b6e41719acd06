# Everything a developer does: make demo | test | test-slow | test-chaos | test-flower | lint | docs | bench | clean
# PYTHON=python3.13 uses another Python, in an environment of its own: .venv-3.13; CONSTRAINTS= pins no versions: .venv-newest
CONSTRAINTS ?= constraints.txt
ifdef PYTHON
PYTHON_VERSION := $(or $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),$(error PYTHON=$(PYTHON): cannot be run))
endif
VENV ?= .venv$(PYTHON_VERSION:%=-%)$(if $(CONSTRAINTS),,-newest)
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet $(CONSTRAINTS:%=--constraint %) --editable
BASE_READY := $(VENV)/.base-ready
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
FLOWER_VENVS := $(VENV)-flower
# The last flag halves the time, but jaxlib 0.11 does not know it, and an unknown flag ends the process.
QUICK_COMPILATION = --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_parallel_codegen_split_count=1 \
	$(if $(wildcard $(VENV)/lib/*/site-packages/jaxlib-0.10.*),--xla_cpu_use_fusion_emitters=false)

FLOWER_VERSIONS := 1.41.0 1.42.0  # supported; the range in pyproject.toml must contain exactly these minor versions
FLOWER_MARKS := $(if $(SLOW),not chaos,not slow and not chaos)

.PHONY: demo test test-slow test-chaos test-flower lint docs bench clean

demo: $(BASE_READY)
	$(BIN)/fedlatest run quickstart --force

test: $(READY)  # compiling is most of the time
	XLA_FLAGS="$(QUICK_COMPILATION)" $(BIN)/pytest -n 2 --dist worksteal -m "not slow and not chaos" --doctest-modules --doctest-glob="*.md" src docs README.md tests

test-slow: $(READY)  # the random histories on both cores; the others one by one, because they start processes
	$(BIN)/pytest -n 2 --dist worksteal -m slow tests/ledger
	$(BIN)/pytest -m slow --ignore tests/ledger tests

test-chaos: $(READY)
	$(BIN)/pytest -m chaos tests

test-flower: $(FLOWER_VERSIONS:%=test-flower-%)  # SLOW=1 adds the slow tests; test-flower-VERSION tests one version

test-flower-%: $(FLOWER_VENVS)/%/.ready
	$(FLOWER_VENVS)/$*/bin/pip check || echo "flwr $*: tested with these requirements unmet"
	$(FLOWER_VENVS)/$*/bin/pytest -n 2 --dist worksteal -m "$(FLOWER_MARKS)" tests/flower tests/ledger tests/deployment

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS_READY)  # the site, into site/; warnings, broken links and missing anchors are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/pytest -q --doctest-modules docs_build
	@echo "open site/index.html"

bench: $(READY)  # about ten minutes; benchmarks/README.md lists the longer ones
	$(BIN)/python -m benchmarks.rounds
	$(BIN)/python -m benchmarks.compilation
	$(BIN)/python -m benchmarks.peers

clean:
	rm -rf .venv .venv-* site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE_READY): pyproject.toml $(CONSTRAINTS)
	$(or $(PYTHON),python3) -c 'import sys; sys.exit("fedlatest needs Python 3.11 or newer; try make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(or $(PYTHON),python3) -m venv $(VENV)
	$(INSTALL) .
	touch $@

$(READY): $(BASE_READY)
	$(INSTALL) '.[dev]'
	touch $@

$(DOCS_READY): $(READY)
	$(INSTALL) '.[docs]'
	touch $@

.PRECIOUS: $(FLOWER_VENVS)/%/.ready
$(FLOWER_VENVS)/%/.ready: pyproject.toml constraints.txt .ci/flower-environment
	PYTHON=$(or $(PYTHON),python3) .ci/flower-environment $* $(@D)
	touch $@

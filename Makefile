# Everything installs into .venv; PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
EXTRAS ?= test,deploy,flower,privacy,ui,pandas,onnx,tensorboard,mlflow,docs
VENV := .venv
BIN := $(VENV)/bin
# One process more than cores: the tests of deployments wait much of the time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
CORE := data problem methods rounds evaluate run

.PHONY: run quick test lint lint-scripts bench docs evidence evidence-render evidence-check wheel-test sbom clean

run: $(VENV)/.core
	@rm -rf runs/first runs/first-unconstrained
	$(BIN)/fedssca run --twin --out runs/first

# The inner loop: lint, types, and the short tests of the core.
quick: lint
	$(PYTEST) -m "not long and not processes" $(addprefix tests/,$(CORE))

test: $(VENV)/.test
	$(PYTEST)

lint: $(VENV)/.test lint-scripts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

# Biome checks the scripts and styles of the pages; `npm run fix` formats them.
lint-scripts:
	@if command -v npm > /dev/null; then \
	  $(MAKE) --no-print-directory node_modules/.biome && npm run --silent lint; \
	else \
	  echo "npm is not installed: the scripts of the pages were not checked"; \
	fi

bench: $(VENV)/.test
	$(BIN)/python benchmarks/solver.py
	$(BIN)/python benchmarks/constraints.py cancer

# Measures what is older than its code; PARTS="NAME ..." chooses some parts.
evidence: $(VENV)/.test
	$(BIN)/python -m benchmarks.evidence run $(PARTS)

evidence-render: $(VENV)/.core
	$(BIN)/python -m benchmarks.evidence render

evidence-check: $(VENV)/.core
	$(BIN)/python -m benchmarks.evidence check

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html; with search: $(BIN)/python -m http.server -d site"

# Builds the wheel, and runs the default job and tests from it in an environment of its own; TESTS="tests/cli ..." chooses tests.
wheel-test: $(VENV)/.test
	.ci/wheel-test $(TESTS)

# A bill of materials (CycloneDX) of the versions in constraints.txt; the tool has its own environment.
sbom: constraints.txt
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
	mkdir -p dist
	build/sbom/bin/cyclonedx-py requirements constraints.txt --output-reproducible --of JSON -o dist/sbom.json
	@echo "dist/sbom.json"

clean:
	rm -rf $(VENV) node_modules runs site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

node_modules/.biome: package.json
	npm install --silent --no-package-lock --no-audit --no-fund
	@touch $@

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@# EXTRAS=$(EXTRAS),torch adds the tests of PyTorch models; without torch they are skipped.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

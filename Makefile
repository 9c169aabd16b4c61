# Everything runs from one virtual environment that the first target makes. `make check` is the whole gate, the same here and in CI.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install demo check lint types imports protos manifests test chaos bench clients gen baseline clean

help:  ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,dev]'
	@touch $@

install: $(BIN)/.installed  ## Make the virtual environment and install all into it

demo: install  ## Start a stack, run workflows, kill it with -9 in mid-run, see every run finish
	$(BIN)/python -m examples.demo

check: install lint types imports protos manifests test  ## The whole gate

lint: install
	ruff check .
	ruff format --check .

types: install
	mypy

imports: install
	lint-imports

protos: install  ## Lint the contract, see that gen/ is what it generates and that it breaks nothing that was released
	proto/gen.sh check
	buf lint
	buf format -d --exit-code
	buf breaking proto --against proto/baseline.binpb

manifests: install  ## Lint the Dockerfile; compare k8s/ and compose.yaml with the schemas of Kubernetes, the Gateway API and compose
	hadolint --failure-threshold info Dockerfile
	$(BIN)/python k8s/check.py

test: install  ## All tests (some minutes of chaos included)
	pytest -n 2 --dist loadgroup

chaos: install  ## The long chaos and field-case variants
	DUCTOR_CHAOS=long pytest -m chaos -p no:xdist --timeout 1800

bench: install  ## Measure against the promises, the limit and the floor program (BENCH_ARGS="--quick --json FILE" for two minutes)
	$(BIN)/python -m bench $(BENCH_ARGS)

clients: install  ## Build every client, tour and worker conformance against a live engine with keys (CLIENTS="go shell" for some)
	$(BIN)/python -m clients.run $(CLIENTS)

gen: install  ## Generate gen/ from proto/
	proto/gen.sh

baseline: install  ## At a release: the contract as it is becomes what later ones are held against
	proto/gen.sh baseline

clean:
	rm -rf $(VENV) .buf-deps .mypy_cache .ruff_cache .pytest_cache

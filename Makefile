# Every target says in one line what it does (`## `); `make help` prints these lines.
#
# `check` and `test` divide the work so that a machine that runs both does nothing slow twice: `check`
# is everything that takes seconds (static checks, generated files, unit and architecture tests) and
# is meant for each edit; `test` is the whole suite, end-to-end tests on real stage processes included.

VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
# Unit tests run two files at a time. End-to-end tests one by one: some must act in the midst of a
# stream. .ci/run says which do not mind (WORKERS=2).
test test-vllm: WORKERS ?= 0
test-unit: WORKERS ?= 2
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help env sglang-env vllm-env check test test-unit test-vllm format format-check lint types imports verify generate demo images bench sizes clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-13s %s\n", $$1, $$2 }'

env: ## Make or update the Python environment in .venv; instant when it is up to date.
	@$(PYTHON) tools/bootstrap.py --venv $(VENV)

sglang-env: env ## Make the environment of a real SGLang on a CPU, for its tests (2.8 GB, cached).
	$(PY) -m tools.sglang_environment

vllm-env: env ## Make the environment of a real vLLM on a CPU, for its tests (3.4 GB, cached).
	$(PY) -m tools.vllm_environment

check: format-check lint types imports verify test-unit ## All that takes seconds: static checks, generated files, unit tests.

test: env ## The whole test suite; PYTEST_ARGS="-k name" passes through.
	$(PYTEST) $(PYTEST_ARGS)

test-unit: env ## Unit and architecture tests only.
	$(PYTEST) tests/unit tests/architecture $(PYTEST_ARGS)

test-vllm: vllm-env ## The contract on a real vLLM; not part of `test` in CI (docs/vllm.md).
	PIPELINESERVE_REQUIRES_VLLM=1 $(PYTEST) tests/e2e/conformance tests/e2e/test_vllm.py -k vllm $(PYTEST_ARGS)

format: env ## Format the code and sort the imports.
	$(PY) -m ruff check --select I --fix .
	$(PY) -m ruff format .

format-check: env ## Say which files `make format` would change.
	$(PY) -m ruff format --check .

lint: env ## Lint with ruff.
	$(PY) -m ruff check .

types: env ## Check the types with mypy, strictly.
	$(PY) -m mypy

imports: env ## Check who imports whom against the contracts in pyproject.toml.
	$(VENV)/bin/lint-imports

verify: env ## Fail if a generated file differs from what its source says now.
	$(PY) -m tools.generate --check

generate: env ## Write the generated files anew.
	$(PY) -m tools.generate

demo: env ## Serve a small model on this machine and send it requests; DEMO_ARGS=--exit stops afterwards.
	$(VENV)/bin/pserve local up -f examples/quickstart.yaml --demo $(DEMO_ARGS)

images: env ## Build the container images; IMAGE_PREFIX, IMAGE_TAG, BASE_IMAGE and more: see tools/images.py.
	$(PY) -m tools.images $(IMAGES)

bench: env ## Measure the engine on this machine; BENCH_ARGS passes through.
	$(PY) bench/engine.py $(BENCH_ARGS)

sizes: env ## Report how long files and functions are; a report, not a gate.
	$(PY) -m tools.sizes

clean: ## Remove caches and build output; the environment stays (`rm -r .venv` removes it).
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find bench cli controller core engine operator simulator tests tools -name __pycache__ -prune -exec rm -rf {} +

# Every target works in a fresh clone: it makes the virtual environment in .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers generate check-generated check isic18 clean

help: ## This list
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.run ## A real federation on this machine, with a live view
	$(BIN)/fedctl run -f examples/digits.yaml $(ARGS)

test: $(VENV)/.dev ## All tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(VENV)/.dev ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy strict
	$(BIN)/mypy -p anchorage -p anchorage_server -p anchorage_operator -p anchorage_silo -p fedctl

layers: $(VENV)/.dev ## import-linter
	$(BIN)/lint-imports

generate: $(VENV)/.dev ## Write gRPC code, error pages and the file's reference
	$(BIN)/python -m grpc_tools.protoc -I core --python_out=core --pyi_out=core core/anchorage/wire/anchorage.proto
	$(BIN)/python -m anchorage.errors.pages docs/errors
	$(BIN)/python -m anchorage.spec.pages docs/federation.md

check-generated: generate ## Fail when a generated file is not in step with its source
	@git diff --exit-code --stat -- core/anchorage/wire docs/errors docs/federation.md
	@test -z "$$(git ls-files --others --exclude-standard -- core/anchorage/wire docs/errors docs/federation.md)"

check: lint types layers check-generated ## Everything but the tests

bench-%: $(VENV)/.dev ## bench-round, bench-aggregate, bench-pseudo, bench-async, bench-resume; ARGS='--json FILE'
	$(BIN)/python benchmarks/$(subst -,_,$*).py $(ARGS)

clean: ## Remove what the tools left
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist

# `make run` and `make test` set up all they need in this folder and do nothing twice.
GOAL ?= Design a go-to-market strategy for my AI code review tool

.PHONY: run setup test check lint types bench clean help
.DEFAULT_GOAL := help

help: ## What can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: ## Set up .venv and fetch the embedded model
	@sh scripts/setup.sh run

# The goal goes through the environment as it stands: it may hold quotes, dollars and backticks.
export GOAL_TEXT := $(value GOAL)

run: setup ## Run the README's goal on the embedded model, or another: make run GOAL="..."
	@printf '%s' "$$GOAL_TEXT" | .venv/bin/romanesco run - --model embedded:smollm2

.PHONY: dev
dev:
	@sh scripts/setup.sh dev

test: dev ## Set up and run the tests
	@.venv/bin/python -m pytest -q -n 2 $(TESTS)

lint: dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: dev
	@.venv/bin/mypy src tests benchmarks

check: lint types test ## Lint, types and tests: what CI runs

bench: dev ## Measure; needs a quiet machine
	@.venv/bin/python -m benchmarks

clean: ## Remove what setup made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help run test lint bench clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: ## set up what is missing and serve until Ctrl-C
	@scripts/run

test: ## set up what is missing and run every test
	@scripts/test

lint: ## style, types, import contract, shell scripts
	@scripts/lint

bench: ## figures of a gateway that runs already (make run, in another terminal)
	@scripts/env --dev
	@.venv/bin/python bench/run.py

clean: ## remove the environment and test state (not .sandglass: your sessions and files)
	rm -rf .venv .sandglass-test .env.lock

.PHONY: help run test lint bench clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: ## set up what is missing and serve until Ctrl-C
	@scripts/run

test: ## set up what is missing and run every test
	@scripts/test

lint: ## style, types, import contract, shell scripts
	@scripts/lint

bench: ## figures beside a client in the sandbox and jupyter_server (ARGS="--quick --profile container --only execute")
	@scripts/bench $(ARGS)

clean: ## remove the environment and test state (not .sandglass: your sessions and files)
	rm -rf .venv .venv-bench .sandglass-test .env.lock

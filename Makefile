.PHONY: help run test abuse lint bench kill-points clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: ## set up what is missing and serve until Ctrl-C
	@scripts/run

test: ## set up what is missing and run every test
	@scripts/test

abuse: ## every attack of tests/abuse/cases.py on both runtimes (of these `make test` has those on a sandbox without a gateway)
	@scripts/test -s tests/abuse

lint: ## style, types, import contract, shell scripts
	@scripts/lint

bench: ## figures beside a client in the sandbox and jupyter_server (ARGS="--quick --profile container --only execute")
	@scripts/bench $(ARGS)

kill-points: ## kill the gateway at random calls on the real engine and check what is left (COUNT=1000, a profile each; about 7 s a kill)
	@SANDGLASS_TEST_KILLS=$(or $(COUNT),1000) scripts/test -s tests/e2e/test_kill_points.py -k random

clean: ## remove the environment and test state (not .sandglass: your sessions and files)
	rm -rf .venv .venv-bench .sandglass-test .env.lock

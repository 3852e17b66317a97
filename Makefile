# Everything here is one line that calls a script or go; the scripts work on their own too.

.PHONY: build image release run test conformance bench clean

build: ## dist/coracle, everything in one file
	scripts/build

image: ## dist/coracle-image.tar, loaded where a Docker engine answers
	scripts/image

release: ## dist/release, signed with the key that CORACLE_RELEASE_KEY names
	scripts/release

run: ## builds if needed and runs a server in the foreground
	scripts/run

test: ## unit and end-to-end tests
	scripts/test

conformance: ## the parts of Kubernetes' own tests that docs/conformance.md scores
	for suite in netpol loadbalancers local-path volumes; do scripts/conformance $$suite || code=1; done; exit $${code:-0}

bench: ## one line per figure, and build/bench.json
	scripts/bench

clean: ## removes what the build made; Go's cache stays
	rm -rf build dist

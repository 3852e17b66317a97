# Each target is one line that calls a script, which can also be called directly.

.PHONY: build image release run test machines dashboard extensions faults conformance bench clean

build: ## dist/coracle, everything in one file
	scripts/build

image: ## dist/coracle-image.tar, and loads it if a Docker engine runs
	scripts/image

release: ## dist/release, signed with the key in the file CORACLE_RELEASE_KEY
	scripts/release

run: ## builds if needed and runs a server in the foreground
	scripts/run

test: ## unit and end-to-end tests
	scripts/test

machines: ## tries coracle on virtual machines of several kinds, and writes docs/machines.md
	scripts/machines

dashboard: ## plays coracle dashboard in Chromium; CORACLE_TEST_PICTURES=DIR keeps pictures
	scripts/dashboard-test

extensions: ## plays the examples of docs/extending; SUBJECT=admission plays one
	scripts/extensions $(SUBJECT)

faults: ## breaks disks, and cuts the power, thousands of times, and writes docs/reliability.md
	scripts/faults

conformance: ## the parts of Kubernetes' own tests with scores in docs/conformance.md
	for suite in netpol loadbalancers local-path csi-driver volumes critest; do scripts/conformance $$suite || code=1; done; exit $${code:-0}

bench: ## prints one line per figure and writes build/bench.json
	scripts/bench

clean: ## removes build and dist; Go's cache stays
	rm -rf build dist

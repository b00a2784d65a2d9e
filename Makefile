# SPDX-License-Identifier: Apache-2.0
# Entry points. Everything else is CMake; see CMakePresets.json.

.PHONY: build demo test bench bench-peers growth lint matrix soak chaos bootstrap clean

build: bootstrap
	scripts/build release

# Each builds what it runs, and nothing else.
demo: bootstrap
	scripts/build release tugline_command train_fashion
	scripts/demo

test:
	scripts/test

bench: bootstrap
	scripts/build release tugline_command benchmarks
	scripts/bench

bench-peers: bootstrap
	scripts/build release tugline_command tugline_peer
	scripts/bench_peers

growth: bootstrap
	scripts/build release tugline_command growth_rank
	scripts/growth

lint:
	scripts/lint

matrix: bootstrap
	scripts/build release tugline_command
	scripts/matrix

MINUTES ?= 20
soak: bootstrap
	scripts/build cpu-tsan tugline_command soak_ranks
	scripts/build cpu-asan tugline_command soak_ranks
	scripts/soak $(MINUTES) $(SEED)

chaos: bootstrap
	scripts/build release tugline_command process_worker
	scripts/chaos

bootstrap:
	@scripts/bootstrap

clean:
	rm -rf build

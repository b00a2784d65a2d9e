# SPDX-License-Identifier: Apache-2.0
# Entry points. Everything else is CMake; see CMakePresets.json.

.PHONY: build demo test bench bench-peers lint soak chaos bootstrap clean

build: bootstrap
	scripts/build release

demo: build
	scripts/demo

test:
	scripts/test

bench: build
	scripts/bench

bench-peers: build
	scripts/bench_peers

lint:
	scripts/lint

soak: build
	scripts/soak

chaos: build
	scripts/chaos

bootstrap:
	@scripts/bootstrap

clean:
	rm -rf build

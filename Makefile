# `make help` lists the targets. All set-up is scripts/setup; all building is CMake with the presets in CMakePresets.json.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

.PHONY: help setup build demo test test-quick test-thorough test-full test-product test-compilers bench bench-peers docs wheel format clean
.DEFAULT_GOAL := help

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup:           # what every other target needs first; quick when nothing is missing
	@scripts/setup

build: setup     ## the program, at build/release/piper
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target piper

demo: build      ## train a small mixture of experts on 4 devices, and show what it did
	@scripts/demo

test:            ## every part, in 20 minutes on two cores
	@scripts/test

test-quick:      ## tests labelled quick, debug build
	@scripts/test quick

test-thorough:   ## more of every part, and the core again under sanitizers: what CI runs
	@scripts/test thorough

test-full:       ## the long versions too, and the fuzzers
	@scripts/test full

test-product:    ## every legal combination of the equality matrix: hours
	@scripts/test product

test-compilers:  ## tests labelled quick with g++, clang 16 and the newest clang
	@scripts/test compilers

bench: setup     ## all benchmarks
	@cmake --preset release -DPIPER_BENCH=ON >/dev/null
	@cmake --build --preset release
	@for program in build/release/*_bench; do [ ! -x $$program ] || $$program || exit 1; done

bench-peers: build  ## training beside PyTorch itself
	@scripts/setup --peers
	@.venv/bin/python bench/train_bench.py build/release/piper

docs:            ## the documentation as a site, at build/site/html
	@scripts/make_site --install

wheel:           ## a wheel of the Python package in build/wheel, tried in a fresh environment
	@scripts/setup --peers
	@scripts/make_wheel

format:          ## clang-format on all C++ files
	@find src tests bench -name '*.h' -o -name '*.cc' | xargs clang-format -i

clean:           ## remove build/
	@rm -rf build

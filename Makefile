# `make demo` shows a lock at work, `make test` tests everything. Both work on a fresh Debian machine with Rust.
SHELL := bash

.PHONY: help demo check test test-all soak-tests audit semver fix doc

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: ## two processes compete for one lock, shown on the terminal
	@command -v redis-server >/dev/null || cargo build --workspace --example serve
	@cargo build --example demo
	@cargo run --quiet --example demo

check: ## format, lints, architecture, unit tests, simulators and model: needs no server
	@tests/run check

test: ## every test once, on real servers; changes no file of the project
	@tests/run test

test-all: ## for releases: all versions of servers and Redisson, all deployments, long simulations, mutants
	@tests/run all

N ?= 20
soak-tests: ## `make test` N times on a machine that two loops keep busy; shows what failed
	@tests/soak $(N)

audit: ## licences, sources and banned crates of all dependencies
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check bans licenses sources

semver: ## what changed since the last tag, and whether the version number fits it
	@tests/semver

fix: ## formats, and fixes what clippy can fix
	cargo clippy --fix --workspace --all-targets --allow-dirty --allow-staged
	cargo fmt --all

doc: ## the documentation, in a browser
	cargo doc --workspace --no-deps --open

include mutants.mk
include bench.mk
include profile.mk

# `make demo` shows it, `make test` proves it; both work on a fresh Debian machine that has Rust.
SHELL := bash

.PHONY: help demo test audit fix doc

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: ## two processes contend for one lock, told on the terminal
	@command -v redis-server >/dev/null || cargo build --workspace --example serve
	@cargo build --example demo
	@cargo run --quiet --example demo

test: ## everything that must hold; changes no file of the project
	@tests/all

audit: ## licences, sources and banned crates of all dependencies
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check bans licenses sources

fix: ## formats, and mends what clippy can mend
	cargo clippy --fix --workspace --all-targets --allow-dirty --allow-staged
	cargo fmt --all

doc: ## the documentation, in a browser
	cargo doc --workspace --no-deps --open

include mutants.mk
include bench.mk
include profile.mk

# Included by the Makefile.

.PHONY: bench

# 22 minutes, and docs/benchmarks.md is written anew; QUICK=1: four minutes, and docs/ is left alone.
QUICK ?=
bench: ## lockdog beside Redisson, redsync, rslock and the bare protocol
	@tests/setup redis-server
	@cargo build --locked --release --manifest-path benches/compare/Cargo.toml --target-dir target/compare
	@target/compare/release/compare $(if $(QUICK),--quick --docs target/bench,--docs docs)

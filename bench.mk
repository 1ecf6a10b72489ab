# Included by the Makefile.

.PHONY: bench

# Takes about half an hour and rewrites docs/benchmarks.md; with QUICK=1 about six minutes, without changing docs/.
QUICK ?=
bench: ## lockdog beside Redisson, redsync, rslock and the bare protocol
	@tests/setup redis-server
	@cargo build --locked --release --manifest-path benches/compare/Cargo.toml --target-dir target/compare
	@target/compare/release/compare $(if $(QUICK),--quick --docs target/bench,--docs docs)

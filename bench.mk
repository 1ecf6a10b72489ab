# Included by the Makefile.

.PHONY: bench

# Takes more than half an hour and rewrites docs/benchmarks.md. With QUICK=1 it measures fewer cells and peers, without
# changing docs/; a test of the plan keeps the windows short enough for four minutes.
QUICK ?=
bench: ## lockdog beside Redisson, redsync, rslock and the bare protocol
	@tests/setup redis-server
	@cargo build --locked --release --manifest-path benches/compare/Cargo.toml --target-dir target/compare
	@target/compare/release/compare $(if $(QUICK),--quick --docs target/bench,--docs docs)

# Included by the Makefile.

.PHONY: profile micro

profile: ## where the time of W1 and W2 goes, by perf: target/profile/*.txt
	@benches/profile

# The cfg needs a target folder of its own, or every build after this one compiles everything again.
micro: ## benchmarks of parts that need no server: guard drop, watchdog bookkeeping, hand-over in the queue
	@RUSTFLAGS="$(RUSTFLAGS) --cfg lockdog_bench" cargo bench --locked --target-dir target/micro --bench micro

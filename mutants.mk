# Included by the Makefile.

.PHONY: mutants soak

# Each defect in tests/mutants/patches must make a test fail.
mutants: ## the library with known defects: each must make a test fail
	tests/mutants/run

# Runs every simulator, each for SEEDS seeds. The one of plain locks runs some 200 seeds per second and core,
# the quorum's some 300.
SEEDS ?= 200000
soak: ## the simulations, each for SEEDS seeds
	LOCKDOG_SEEDS=$(SEEDS) cargo test --workspace --lib no_seed_violates -- --nocapture

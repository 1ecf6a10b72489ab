# Included by the Makefile.

.PHONY: mutants soak

# Each defect in tests/mutants/patches must make a test fail.
mutants: ## the engine with defects: each must make a test fail
	tests/mutants/run

# The simulations of the engine and of the quorum, each for as many seeds as SEEDS says: some 200 and
# 300 a second and core.
SEEDS ?= 200000
soak: ## the simulations for as many seeds as SEEDS says
	LOCKDOG_SEEDS=$(SEEDS) cargo test --workspace --lib simulation::no_seed -- --nocapture

# Included by the Makefile.

.PHONY: mutants soak

# Each defect in src/mutant.rs must make a test fail.
mutants: ## the engine with defects: each must make a test fail
	tests/mutants

# The simulation for as many seeds as SEEDS says: some 200 a second and core.
SEEDS ?= 200000
soak: ## the simulation for as many seeds as SEEDS says
	LOCKDOG_SEEDS=$(SEEDS) cargo test --lib simulation::no_seed -- --nocapture

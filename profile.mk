# Included by the Makefile.

.PHONY: profile

profile: ## where the time of W1 and W2 goes, by perf: target/profile/*.txt
	@benches/profile

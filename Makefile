# make demo | test | campaigns | long-campaigns | lint | bench | explore | mutants | spec, each with ARGS="..." to pass arguments on. No other preparation is needed.
PYTHON = .venv/bin/python
CODE = $(wildcard src sims tests examples)
ARGS =
# Tests mostly wait, so two processes run them, a file at a time, each with servers of its own; where servers are given, they
# are shared, and one process runs them all.
WORKERS = $(if $(COBALANCE_REDIS_URL)$(COBALANCE_AMQP_URL),0,2)

.PHONY: demo test campaigns long-campaigns lint bench explore mutants spec chaos

demo: .venv/.up-to-date
	.venv/bin/cobalance demo $(ARGS)

test: .venv/.up-to-date check
	$(PYTHON) -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

# The short forms of the long campaigns below, which CI runs before the tests.
campaigns: .venv/.up-to-date check
	$(PYTHON) -m pytest -m 'campaign and not long_campaign' -o faulthandler_timeout=900 $(ARGS)

# Not for CI, for their length or since Spark gives a process 10 s to start: whole Sparks of their own, --follow, a calibration of hours
# of simulated life, an example from journal to recommendation.
long-campaigns: .venv/.up-to-date check
	$(PYTHON) -m pytest -m long_campaign -o faulthandler_timeout=900 $(ARGS)

lint: ARGS_FOR_RUFF = $(ARGS)
lint: check

bench: .venv/.up-to-date
	.venv/bin/cobalance bench $(ARGS)

# Every interleaving of small groups; ARGS="2x2-deep --replay" and the like choose other scopes.
explore: .venv/.up-to-date
	$(PYTHON) -m cobalance_sims.explore $(ARGS)

# Whether planted bugs are found; ARGS="no-fencing --stories" tells how one is.
mutants: .venv/.up-to-date
	$(PYTHON) -m cobalance_sims.mutants $(ARGS)

# The TLA+ document by TLC, which is fetched when it is first needed; ARGS="models", "mistakes" or "histories" checks that part.
spec: .venv/.up-to-date
	$(PYTHON) -m cobalance_sims.spec $(ARGS)

# Real processes and servers, and everything that goes wrong; ARGS="--kind quorum --seconds 1800" for a long run.
chaos: .venv/.up-to-date
	$(PYTHON) -m tests.chaos $(ARGS)

# ARGS of `make lint` go to ruff check (ARGS=--fix); those of `make test` go to pytest alone.
.PHONY: check
check: .venv/.up-to-date
	$(PYTHON) -m ruff check $(CODE) $(ARGS_FOR_RUFF)
	$(PYTHON) -m ruff format --check $(CODE)
	$(PYTHON) -m mypy $(CODE)
	.venv/bin/lint-imports --no-logo

.venv/.up-to-date: pyproject.toml .ci/venv
	.ci/venv

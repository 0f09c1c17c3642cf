# `make help` lists the targets. No other preparation is needed; ARGS="..." passes arguments on.
PYTHON = .venv/bin/python
CODE = $(wildcard src sims tests examples)
# Folders of which much runs in this process, in virtual time.
UNIT = tests/coordinator tests/member tests/rabbitmq tests/testing \
	--ignore tests/coordinator/test_large_groups.py --ignore-glob 'tests/coordinator/test_*_properties.py'
ARGS =
# Tests mostly wait, so six processes run them, three for each of two processors, a file at a time, each with servers
# of its own; where servers are given, they are shared, and one process runs them all. tests/conftest.py has the order of the files. A
# process that crashes is not replaced, since xdist may wait for ever for what was left.
WORKERS = $(if $(COBALANCE_REDIS_URL)$(COBALANCE_AMQP_URL),0,6)
BY_FILE = --dist loadfile --no-loadscope-reorder --max-worker-restart 0
SPREAD = --numprocesses $(WORKERS) $(BY_FILE)

# The tests start the library in hundreds of processes, which would all compile it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo unit test thorough campaigns long-campaigns fmt lint bench coverage defaults explore fidelity mutants spec stories chaos lock fresh test-servers

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' Makefile

demo: .venv/.up-to-date ## processes come, go and crash under load, and a verdict on every message
	.venv/bin/cobalance demo $(ARGS)

# Those without a server, in virtual time for the most part. An installation of the extra `test` is enough, without Spark, Java and
# matplotlib.
unit: .venv/.up-to-date ## the quick tests, without servers
	$(PYTHON) -m pytest --numprocesses 2 -m 'not server and not thorough and not campaign and not long_campaign' $(UNIT) $(ARGS)

test: .venv/.up-to-date ## the tests, with servers of their own
	$(PYTHON) -m pytest $(SPREAD) $(ARGS)

# What takes a second of a processor or more, and more of what `make test` looks at: trio, other Luas, quorum queues, more examples,
# seeds and stories; and RabbitMQ beside memory://.
thorough: .venv/.up-to-date ## costly tests and long forms of quick ones, which CI runs, too
	$(PYTHON) -m pytest $(SPREAD) -m '(thorough or in_process) and not campaign' $(ARGS)

# The short forms of the long campaigns below, which CI runs before the tests. Most keep one processor busy, or none, so two files run
# at a time; those on Spark share one Spark, which takes what it can get.
CAMPAIGNS = $(PYTHON) -m pytest -m 'campaign and not long_campaign' -o faulthandler_timeout=900
campaigns: .venv/.up-to-date ## the long tests that CI runs before `make test`
ifeq ($(strip $(ARGS)),)
	code=0; \
	$(CAMPAIGNS) --numprocesses $(if $(filter 0,$(WORKERS)),0,2) $(BY_FILE) --ignore tests/spark || code=1; \
	$(CAMPAIGNS) tests/spark || code=1; \
	exit $$code
else
	$(CAMPAIGNS) $(ARGS)
endif

# Not for CI, for their length, since Spark gives a process 10 s to start, or since TLC is fetched: whole Sparks of their own, --follow,
# recorded handovers against their specification, a calibration of hours of simulated life, an example from journal to recommendation.
long-campaigns: .venv/.up-to-date ## the longest tests, which CI does not run
	$(PYTHON) -m pytest -m long_campaign -o faulthandler_timeout=900 $(ARGS)

fmt: .venv/.up-to-date ## fix and format the code
	$(PYTHON) -m ruff check --fix $(CODE) .ci $(ARGS)
	$(PYTHON) -m ruff format $(CODE) .ci

lint: .venv/.up-to-date ## ruff, mypy and import-linter
	$(PYTHON) -m ruff check $(CODE) .ci
	$(PYTHON) -m ruff format --check $(CODE) .ci
	$(PYTHON) -m mypy $(CODE)
	.venv/bin/lint-imports --no-logo

# ARGS=--peers plays one story on Cobalance, RabbitMQ alone and Kafka; ARGS=--cost measures changes of groups of all sizes;
# ARGS="--compare old.json" says what got worse since a run with --json.
bench: .venv/.up-to-date ## figures beside raw peers
	$(PYTHON) -m proof.bench $(ARGS)

# Every interleaving of small groups; ARGS="2x2-deep --replay" and the like choose other scopes.
explore: .venv/.up-to-date ## every interleaving of small groups
	$(PYTHON) -m proof.explore $(ARGS)

# Every story in virtual time with ten seeds, and every promise; ARGS="run everything --seed 7", "names" or "speed" for the rest.
stories: .venv/.up-to-date ## every story of trouble in virtual time, and every promise
	$(PYTHON) -m proof.stories $(ARGS)

# One story on real servers and processes, and simulated, side by side.
fidelity: .venv/.up-to-date ## one story on real servers, and simulated
	$(PYTHON) -m proof.fidelity $(ARGS)

# What a sweep says about the timeouts that are shipped; ARGS="SWEEP --out FILE".
defaults: .venv/.up-to-date ## what a sweep says about the timeouts that are shipped
	$(PYTHON) -m proof.studies.shipped $(ARGS)

# True churns, simulated, calibrated, tuned and judged; ARGS="--truths 80 --master spark://..." for more; what is in --out is not made again.
coverage: .venv/.up-to-date ## how often intervals and recommendations of tune hold
	$(PYTHON) -m proof.studies.coverage $(ARGS)

# Whether planted bugs are found; ARGS="no-fencing --stories" tells how one is.
mutants: .venv/.up-to-date ## whether planted bugs are found
	$(PYTHON) -m proof.mutants $(ARGS)

# The TLA+ document by TLC, which is fetched when it is first needed; ARGS="models", "mistakes", "histories" or
# "handovers" checks that part; the last one starts a RabbitMQ.
spec: .venv/.up-to-date ## the TLA+ document, by TLC
	$(PYTHON) -m proof.spec $(ARGS)

# Real processes and servers, and everything that goes wrong; ARGS="--kind quorum --seconds 1800" for a long run, ARGS="--servers redis-sentinel"
# (redis-cluster, rabbitmq-cluster) for clusters and replicated servers.
chaos: .venv/.up-to-date ## real processes and servers under faults
	$(PYTHON) -m tests.chaos $(ARGS)

# What .ci/venv installs, for every Python from 3.11 on; ARGS=--upgrade takes the newest of everything.
lock: .venv/.up-to-date ## requirements-dev.lock, rebuilt from pyproject.toml
	.venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --extra dev \
		--custom-compile-command "make lock" --output-file requirements-dev.lock $(ARGS) pyproject.toml

# The README's two commands, or ARGS='"make test"' and the like, in the root of a Debian that has nothing; RELEASE=bookworm takes
# another Debian than trixie, WITH=valkey-server installs packages first. As root, with debootstrap.
fresh: ## the README's commands in the root of a bare Debian
	.ci/fresh $(ARGS)

# The tests on the servers that people run, one after the other: Redis 7.0 and RabbitMQ 3.10, Redis 8 and RabbitMQ 4, Valkey 8 and
# RabbitMQ 4, as Debian 12 and 13 have them.
test-servers: ## the tests on each Redis and RabbitMQ that Debian has
	code=0; \
	RELEASE=bookworm .ci/fresh "make thorough" "make test" || code=1; \
	RELEASE=trixie .ci/fresh "make thorough" "make test" || code=1; \
	RELEASE=trixie WITH=valkey-server .ci/fresh "make thorough" "make test" || code=1; \
	exit $$code

.venv/.up-to-date: pyproject.toml requirements-dev.lock .ci/venv
	.ci/venv

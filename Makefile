# Three commands to know: `make demo` shows everything, `make run` starts a broker, `make test` runs every test, as CI does
# beside `make check`.
# On a fresh machine they need Python 3.11 or newer and make; everything else is installed into .venv.

# The system's Python where it will do: distributions build theirs with profile-guided optimization, pyenv does not unless
# told so, and that is a third of the speed (bench/README.md). Any other: make test PYTHON=python3.13
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .venv-bench
BENCH := $(BENCH_VENV)/bin/python -m
QUIET_PIP := pip --disable-pip-version-check --quiet
PIP := $(BIN)/python -m $(QUIET_PIP)
SOURCES := src tests $(wildcard bench tools)

# Extra arguments for the broker and for pytest: make run SERVE="--listen 127.0.0.1:9192", make test TESTS="tests/cli -x"
SERVE ?=
TESTS ?=
# Tests wait more than they compute, so there are more workers than cores; simulations only compute.
WORKERS ?= 6
JOBS ?= 2
SECONDS ?= 60
SEEDS ?= 1000
FAULTS ?= 500
# make bench-tls QUICK=--quick
QUICK ?=
REPORT ?= demo-report.html

# With compiled files a broker starts in two thirds of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run demo test test-long test-times test-again test-tools check format clean schemas etcd-stubs bench bench-quick bench-queues bench-transactions bench-cluster bench-spark bench-http bench-push bench-tls bench-tools hostile fuzz crash sim chaos exactly-once access-matrix console-pictures

run: $(VENV)/.core
	exec $(BIN)/headwater serve $(SERVE)

# A shop on Headwater, live, for SECONDS: a broker, clicks and orders, a pipeline on Spark, workers of a queue, a report.
demo: $(VENV)/.spark
	exec $(BIN)/python -m headwater.demo --seconds $(SECONDS) --report $(REPORT)

test: $(VENV)/.dev test-tools
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

# Everything there is, with every client, seed, kill and example (docs/reliability.md): before an issue is called resolved.
test-long: $(VENV)/.dev test-tools
	HEADWATER_TEST_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

# As `make test`, and what it cost: CPU seconds by folder and by file, of the tests and of all that they started.
test-times: $(VENV)/.dev test-tools
	$(BIN)/python -m pytest -n $(WORKERS) -p tools.suite_times $(TESTS)

# What has just failed, once more and alone. A test that passes then is a flake, which is printed by its name, and a bug: in the
# test or in what it tests. Failures in more than a few files are no accident.
MAY_FAIL_ONCE := 5
test-again: $(VENV)/.dev
	@$(BIN)/python tools/flakes.py $(MAY_FAIL_ONCE)

# Kafka clients that are not Python packages: kcat, and a JDK with Maven for the Java client; etcd and ZooKeeper. The tests that
# need one are skipped where it is missing, so a machine without root still runs all the others.
test-tools:
	@./.ci/test-tools

check: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.toml
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Headwater, Apache Kafka and, for queues, RabbitMQ and NATS taking turns on this machine, alone and as clusters: hours, or about one (bench/README.md).
# Leave the machine alone meanwhile.
bench: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.run

bench-quick: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.run --quick

bench-queues: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.queues

bench-transactions: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.transactions

# Three nodes of each: replicated load, nodes that are killed, paused and stopped, thousands of partitions.
bench-cluster: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.cluster

# Spark's own Kafka connector beside format("headwater"), on one broker: about an hour.
bench-spark: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.spark

# Writing over HTTP, with a gateway that has one core: two minutes.
bench-http: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.http_gateway

# Webhooks: 1,000 deliveries a second, and how long each took from the producer to the receiver.
bench-push: $(BENCH_VENV)/.ready
	$(BENCH) bench.push

# TLS, logins and access control: Headwater without and with them, and Apache Kafka: about 45 minutes (QUICK=--quick: 8).
bench-tls: $(BENCH_VENV)/.ready bench-tools
	$(BENCH) bench.tls $(QUICK)

bench-tools: test-tools
	@./.ci/bench-tools

# Kill -9 under load, 200 times; the suite does the same 20 times.
crash: $(VENV)/.dev
	$(BIN)/python -m bench.crash --rounds 200

# The replication protocol in virtual time, under every fault there is; the suite runs a few hundred seeds.
sim: $(VENV)/.dev
	$(BIN)/python -m headwater.testing.simulation --seeds $(SEEDS) --jobs $(JOBS)

# Three nodes and etcd as real processes: killed, paused, cut from each other, out of disk. The suite does 30 faults. Cutting
# links and filling disks needs root; without it these are left out, and said so.
chaos: $(VENV)/.dev test-tools
	$(BIN)/python -m headwater.testing.chaos --faults $(FAULTS)

# Kill -9 of the broker and of the programs of a pipeline, 20 times each, over 200,000 records; the suite does a tenth.
exactly-once: $(VENV)/.dev
	$(BIN)/python -m bench.exactly_once

# Every request with too few and with enough rights, to Headwater and to Apache Kafka with its own authorizer: some minutes.
# Fails on a difference that tests/broker/access/matrix/differences.toml does not explain, or that is none any more.
access-matrix: $(VENV)/.dev test-tools
	$(BIN)/python -m tests.broker.access.matrix.against_kafka

# The console's views as docs/pictures/console-*.png, taken by Chromium.
console-pictures: $(VENV)/.dev test-tools
	$(BIN)/python -m tests.console.pictures

# A broker under attack by ten thousand connections and by floods, and how it is for the others meanwhile: six minutes.
hostile: $(VENV)/.dev
	$(BIN)/python -m bench.hostile

# Every parser of what strangers say, mutated by the code that it reaches, for SECONDS each.
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) --jobs $(JOBS)

clean:
	rm -rf $(VENV) $(BENCH_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headwater needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	touch $@

$(VENV)/.spark: pyproject.toml | $(BIN)/python
	@echo "installing PySpark: 450 MB, a minute or two the first time"
	$(PIP) install -e ".[spark]"
	touch $@ $(VENV)/.core

$(VENV)/.fuzz: pyproject.toml | $(VENV)/.dev
	$(PIP) install -e ".[fuzz]"
	touch $@

# Modules and tests are compiled here, once: the workers of a first run would all do it, each for itself.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e ".[dev]"
	$(BIN)/python -m pytest --collect-only -qq >/dev/null
	touch $@ $(VENV)/.core $(VENV)/.spark

$(BENCH_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH) $(QUIET_PIP) install -e ".[dev,bench]"
	touch $@

schemas: $(VENV)/.dev
	$(BIN)/python tools/generate_schemas.py
	$(BIN)/python tools/generate_messages.py
	$(BIN)/ruff format --quiet src/headwater/wire

# Made by a pinned generator in an environment of its own: code that protobuf 6.31 made runs with every later 6 and 7.
etcd-stubs: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/stubs
	$(VENV)/stubs/bin/python -m pip --disable-pip-version-check --quiet install grpcio-tools==1.76.0
	$(VENV)/stubs/bin/python -m grpc_tools.protoc -I src --python_out src --pyi_out src src/headwater/metadata/etcd/etcd.proto

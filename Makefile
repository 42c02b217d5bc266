# Everything that is needed on a machine with Python 3.11, Java 17 and package registries.
# `make help` lists the targets: the text after ## beside each.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
# The interpreter that makes the environment: PYTHON=/path/to/python3.11, or the first one found that is new enough.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# The package allows newer ones; the environment of this checkout needs this one. Spark's own Kafka connector, which demo,
# benchmark and tests run for comparison, could not be resolved in newer versions (spark_eos/tools/devcluster/jars.py), and
# delta-spark allows no newer Spark, which pip would find out only after downloading one.
SPARK := pyspark==4.2.0
PYTEST := $(BIN)/python -m pytest
# With ARGS such as "-k ledger", some of several runs may have no test at all (exit code 5).
NONE_WILL_DO = $(if $(ARGS),|| test $$? = 5)
# Tests that need neither Java nor a broker keep two processes busy, which take tests from each other at the end.
TWO_AT_ONCE := --numprocesses auto --maxprocesses 2 --dist worksteal
QUICK := tests/unit tests/simulation tests/wire --ignore-glob="tests/simulation/test_model_*"
QUICKLY = SPARK_EOS_SIMULATION_SCHEDULES=$${SCHEDULES:-400} SPARK_EOS_WIRE_SCHEDULES=$${WIRE_SCHEDULES:-30} \
	$(PYTEST) --quiet $(TWO_AT_ONCE) -m "not chaos"
# Of these, coverage (pyproject.toml) is measured by the tests of the two rooms that it is asked of, as a test takes twice as long
# when it is measured; of other schedules, and of mistakes that are put in, measuring shows nothing new.
MEASURED := $(wildcard tests/unit/source/test_decode*.py tests/unit/kafka/producer/test_refus*.py) tests/unit/kafka/records \
	tests/unit/protocol $(addprefix tests/simulation/,scenarios test_outputs.py test_retired.py test_two_phase.py)
# All others wait half of their time, so two cores have four processes. They share the files, in the order of
# collection: the long ones come first. ARGS=-n0 runs all in one process.
OTHERS := tests/chaos tests/contract tests/integration $(wildcard tests/simulation/test_model_*)
FILES_AT_ONCE := --numprocesses 4 --dist loadfile --no-loadscope-reorder
# Kills and faults wait most of their time and are long: three processes, each with its own brokers, take them one by one.
ONE_BY_ONE := --numprocesses 3 --dist load --maxschedchunk 1
# Makes, once on a machine, what the many JVMs of the tests start from in half the time. Nothing fails without it.
PREPARE := $(BIN)/python -m tests.support.spark.fast_start > /dev/null

# Tests start some two thousand Python processes. Each would compile this package anew where bytecode is not kept, as in many
# containers, and start threads for matrices that nobody multiplies: together that is half of what a start takes.
unexport PYTHONDONTWRITEBYTECODE
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install demo bench compare profile test preparing check lint types format chaos matrix sparks soak simulate notebooks docs release site clean java
.NOTPARALLEL:

help: ## list the targets
	@echo "usage: make <target>"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1 \t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

install: $(STAMP) ## make the environment (.venv) and install the package and its tools into it
	@echo "$(VENV) is there"

demo: java $(STAMP) ## run the main job on real input, kill it at each step of its protocol, prove the result
	@$(BIN)/python -m demo $(ARGS)

bench: java $(BENCH_STAMP) ## measure ours against Spark's own connector; ARGS="source --rows 0.1" is a short one
	@$(BIN)/python -m bench $(ARGS)

compare: java $(BENCH_STAMP) ## kill and fence several systems in the same way, count their rows, and write docs/compare.md; ARGS="--only copy/zombie"
	@$(BIN)/python -m bench.compare $(ARGS)

profile: java $(BENCH_STAMP) ## record a run of the benchmark by py-spy and Java Flight Recorder; ARGS="latency --only 'ours → ours'"
	@mkdir -p build/profile
	@SPARK_SUBMIT_OPTS="-XX:StartFlightRecording=settings=profile,filename=build/profile/jvm.jfr" \
		$(BIN)/py-spy record --subprocesses --native --rate 30 --format flamegraph --output build/profile/python.svg \
		-- $(BIN)/python -m bench $(or $(ARGS),pipeline --case '100 B' --only 'ours → ours')

test: export WIRE_SCHEDULES ?= 300
test: java preparing lint types ## run every check: those of `make check` with coverage, then all other tests but the slow share of the kills
	@$(QUICKLY) $(MEASURED) $(if $(ARGS),$(ARGS) $(NONE_WILL_DO),--cov)
	@$(QUICKLY) $(QUICK) $(addprefix --ignore=,$(MEASURED)) $(ARGS) $(NONE_WILL_DO)
	@$(PYTEST) -m "not chaos" --durations=10 $(OTHERS) $(FILES_AT_ONCE) $(ARGS) $(NONE_WILL_DO)

# Beside lint and types, which leave a core to it.
preparing: $(STAMP)
	@$(PREPARE) &

# `make test` puts known mistakes into the code besides: what that shows is what simulations see, whatever was changed.
check: lint types ## what needs neither Java nor a broker: lint, types, unit tests, 400 simulated schedules
	@$(QUICKLY) $(QUICK) --ignore-glob="*/test_known_mistakes.py" $(ARGS) $(NONE_WILL_DO)

lint: $(STAMP) ## look for mistakes without running anything: ruff's rules and format, the import rules, workflows
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@$(BIN)/zizmor --offline --quiet --pedantic .github > $(VENV)/zizmor.log 2>&1 || { cat $(VENV)/zizmor.log; exit 1; }
	@echo "lint: ok"

types: $(STAMP) ## look whether types fit: mypy, strict, over spark_eos, jobs, bench, demo and release
	@$(BIN)/mypy --no-error-summary && echo "types: ok"

format: $(STAMP) ## lay out the code as `make lint` wants it, and mend what ruff can mend by itself
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

chaos: java $(STAMP) ## kills and faults on real brokers: half of all cases, in which every value of every parameter occurs; SEED=1 takes others, ALL=1 all
	@$(PREPARE) || true
	@$(PYTEST) -m chaos $(if $(ALL),,--cover $(or $(SEED),0)) $(ONE_BY_ONE) $(ARGS) $(NONE_WILL_DO)

matrix: java $(STAMP) ## run suites on each version of Kafka, and write the table of docs/versions.md; ARGS="--only 3.9.2"
	@$(BIN)/python -m tests.matrix $(ARGS)

sparks: java $(STAMP) ## run the core of the suite on each version of Spark and Python; ARGS="--only 4.3.0-3.13"
	@$(BIN)/python -m tests.sparks $(ARGS)

soak: java $(STAMP) ## random faults against a running query, by SEED=… for SECONDS=600, WAY=copy, TWO_PHASE=1; then `make simulate` in short
	@$(BIN)/python -m tests.chaos.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(if $(WAY),--way $(WAY)) \
	  $(if $(TWO_PHASE),--two-phase)
	@$(BIN)/python -m tests.simulation --schedules $${SCHEDULES:-20000} --first $(or $(SEED),0)
	@SPARK_EOS_WIRE_SCHEDULES=$${WIRE_SCHEDULES:-2000} $(PYTEST) -s $(TWO_AT_ONCE) tests/wire $(NONE_WILL_DO)

simulate: $(STAMP) ## run the simulations for long: 20,000 more schedules of the protocol and of the source, then 150,000 of the connections; figures go to docs/testing.md
	@$(BIN)/python -m tests.simulation --schedules $${SCHEDULES:-20000} --first $(or $(SEED),0) --state $(VENV)/simulated.json
	@$(BIN)/python -m tests.simulation.source --schedules $${SCHEDULES:-20000} --first $(or $(SEED),0) --state $(VENV)/simulated-source.json
	@$(BIN)/python -m tests.simulation.figures $(VENV)/simulated.json $(VENV)/simulated-source.json
	@SPARK_EOS_WIRE_SCHEDULES=$${WIRE_SCHEDULES:-50000} SPARK_EOS_WIRE_STATE=$(VENV)/wire-schedules SPARK_EOS_WIRE_EVERY_BYTE=1 \
		$(PYTEST) -s -o faulthandler_timeout=0 $(TWO_AT_ONCE) tests/wire $(ARGS) $(NONE_WILL_DO)

release: $(STAMP) ## build sdist and wheel twice, compare and check them, list and audit dependencies; publish nothing; ARGS=--without-audit
	@$(BIN)/python -m release $(ARGS)

site: $(STAMP) ## make a website of the documentation, in build/site; VERSION=0.1 puts it beside other versions, in the local branch gh-pages
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[site]"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site is there; to look at it and search: python3 -m http.server --directory build/site"
	@$(if $(VERSION),NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases $(VERSION) latest && $(BIN)/mike set-default latest && echo "the branch gh-pages has $(VERSION)")

notebooks: java $(STAMP) ## run notebooks/ in place, and keep their outputs; ARGS=quickstart runs one
	@$(BIN)/python -m tests.notebooks $(ARGS)

docs: $(STAMP) ## write the pages that are made from the code
	@$(BIN)/python docs/pages.py

clean: ## remove the environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Once, and again when the dependencies change. The stamp is written last: a broken install is never taken for a whole one.
$(STAMP): setup.cfg pyproject.toml
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), once: about 1 GB with Spark, some minutes …"
	@start=$$(date +%s); $(BIN)/python -m pip install --quiet --disable-pip-version-check "$(SPARK)" -e ".[all]" \
		&& echo "installed in $$(( $$(date +%s) - start )) s" && touch $@

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]" && touch $@

define CHECK_PYTHON
test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found:" \
		"install it, or name it by 'make PYTHON=/path/to/python3.11 …'." >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "'$(PYTHON)' is not a Python 3.11 or newer: install one, or name another by" \
		"'make PYTHON=/path/to/python3.11 …'." >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "'$(PYTHON)' cannot make environments:" \
		"install its venv module (on Debian and Ubuntu the package python3-venv)." >&2; exit 1; }
endef

# JAVA_HOME goes before the PATH, as it does for Spark.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	test -n "$$version" || { echo "No Java was found ('$$java' does not run): install Java 17 or newer" \
		"and set JAVA_HOME to its folder." >&2; exit 1; }; \
	test "$$version" -ge 17 || { echo "'$$java' is Java $$version: Spark and Kafka need Java 17 or newer;" \
		"install it and set JAVA_HOME to its folder." >&2; exit 1; }

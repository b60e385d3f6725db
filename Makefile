# make run   : set everything up and run the gateway on 127.0.0.1:9092, data in ./data, with the console on 127.0.0.1:8080;
#             LISTEN, DATA and CONSOLE choose others
# make test  : set up what a user has, Python, Java and Maven, and run the tests of what a user relies on; a quarter of an hour
# make test-all : the rest that a change can break, with apt's Redis, PostgreSQL, kcat and Chromium; half an hour more
# make test-nightly : searches, planted faults, pages, examples, other languages, releases; needs Go, Rust, Node and more, hours
# make test ARGS="tests/log -k retention" : what ARGS names, in one process, where --pdb and -s work
# make test-quick : only the tests of single rooms, which need no Java, Spark, Redis, PostgreSQL or client libraries
# make demo  : real flights from three client libraries through a lossy proxy into Spark; ARGS=--secure with TLS and logins,
#             ARGS=--cluster with three gateways, of which one is killed every ten seconds
# make check : format, lint, types, import contracts
# make bench : the same load on Seqgate and on Apache Kafka, alternately; prints ratios
# make bench-bucket : the same load on a local disk and on a bucket that is far away
# make bench-catchup : what a full read of old data does to producing, on both
# make soak  : everything that can go wrong, made to go wrong from a seed for as long as you like; prints counts
# make release : build, check, install and use what a release has, on every Python that is here; ARGS=--rehearsal before the release
# make docs  : write the generated pages and the dashboard again
# make site  : build the docs as a site in artifacts/site, without network, and check its links
# make architecture : draw docs/architecture.svg again, from the imports

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:9092
DATA ?= ./data
# The address of the console; without one, 127.0.0.1:8080 or, where that is taken, a port that the system chooses.
CONSOLE ?=
# The folders that mirror the packages; tests/README.md says what belongs there.
MIRROR := tests/test_structure.py tests/seq_validator tests/pid_allocator tests/log tests/gateway tests/spark_kafka_compat
# Processes that run tests: one more than processors, because tests often wait for brokers. Each may hold an Apache Kafka, a Spark and
# gateways, about 3 GB, so that there are 4 at most.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
IN_PARALLEL := -q -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Runs the tests of a tier, or what ARGS names, and ends every process that they leave, also after Ctrl-C.
run_tests = $(BIN)/python -m $(if $(ARGS),tests.support.reaper $(BIN)/python -m pytest -q $(ARGS),tests.tiers $(1) $(IN_PARALLEL))

# Installs the checkout with what $(1) names. A line for each package says what is going on: an installation takes minutes.
define install
{ $(BIN)/python -m pip install --disable-pip-version-check --no-compile --progress-bar off --editable '.[$(1)]' && echo Done; } | { \
	status=1; \
	while read -r word rest; do case "$$word" in \
		Collecting) echo "  $${rest%%[!a-zA-Z0-9._-]*}" ;; \
		Installing) case "$$rest" in collected*) echo "Unpacking the packages ..." ;; esac ;; \
		Done) status=0 ;; \
	esac; done; \
	exit $$status; \
}
endef

PACKAGES := gateway log pid_allocator seq_validator spark_kafka_compat
SOURCES = $(shell find $(PACKAGES) src -name '*.py' -o -name '*.pxd')

TESTING := test test-all test-nightly test-quick
# The order of sets of strings decides which cases a random test meets.
$(TESTING): export PYTHONHASHSEED := 0
# The tests start thousands of processes, each of which would compile the sources again where Python may not keep what it has compiled.
$(TESTING): export PYTHONDONTWRITEBYTECODE :=

# The core is compiled with what the installation brings.
.NOTPARALLEL:
.PHONY: run $(TESTING) demo check format bench bench-bucket bench-catchup soak release docs site architecture peers peers-test peers-all peers-nightly clean
.DEFAULT_GOAL := run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Seqgate needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

comma := ,

# A start that compiles takes two seconds instead of a third of one, each time on a machine where Python may not keep what it has compiled.
$(VENV)/.compiled: $(SOURCES) | $(BIN)/python
	@$(BIN)/python hatch_build.py
	@echo "Compiling Seqgate's modules ..."
	@$(BIN)/python -m compileall -q -j 0 $(PACKAGES) src
	@touch $@

$(VENV)/.ready-run: pyproject.toml | $(BIN)/python
	@echo "Installing Seqgate and what it needs into $(VENV), once: a minute or two ..."
	@$(call install,console$(comma)compile)
	@echo "Compiling the packages ..."
	@$(BIN)/python -m compileall -q -j 0 $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	@touch $@

# An environment for each purpose: the extra of this name in pyproject.toml. An environment has those of the extras that its own one names.
# Compiling all packages takes longer than installing them, and most of their files are never imported.
$(VENV)/.ready-%: pyproject.toml | $(BIN)/python
	@echo "Installing Seqgate and what '$*' needs into $(VENV), once: a few minutes ..."
	@$(call install,$*)
	@touch $@ $(addprefix $(VENV)/.ready-,$(HAS_$*))

HAS_check := test
HAS_test-all := test demo
HAS_test-nightly := $(HAS_test-all) test-all docs
HAS_dev := $(HAS_test-nightly) test-nightly check

run: $(VENV)/.ready-run $(VENV)/.compiled
	@exec $(BIN)/seqgate serve --guide $(if $(CONSOLE),--console-listen $(CONSOLE),--console) --listen $(LISTEN) --data-dir $(DATA)

demo: $(VENV)/.ready-demo
	@exec $(BIN)/python -m examples.demo $(ARGS)

peers: peers-nightly

# What the tests of a tier run beside the gateway.
peers-test: $(VENV)/.ready-test $(VENV)/.compiled
	$(BIN)/python -m tests.support.setup_peers test

peers-all: $(VENV)/.ready-test-all $(VENV)/.compiled
	$(BIN)/python -m tests.support.setup_peers all

peers-nightly: $(VENV)/.ready-test-nightly $(VENV)/.compiled
	$(BIN)/python -m tests.support.setup_peers nightly

test: peers-test
	$(call run_tests,test)

test-all: peers-all
	$(call run_tests,all)

test-nightly: peers-nightly
	$(call run_tests,nightly)

test-quick: $(VENV)/.ready-test $(VENV)/.compiled
	$(BIN)/python -m tests.support.reaper $(BIN)/python -m pytest $(IN_PARALLEL) --tier=test $(or $(ARGS),$(MIRROR))

check: $(VENV)/.ready-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: peers
	$(BIN)/python -m tests.performance.compare $(ARGS)

bench-bucket: peers
	$(BIN)/python -m tests.performance.bucket $(ARGS)

bench-catchup: peers
	$(BIN)/python -m tests.performance.catchup $(ARGS)

soak: peers
	$(BIN)/python -m tests.soak $(ARGS)

release: $(VENV)/.ready-test-nightly
	$(BIN)/python -m tests.release $(ARGS)

docs: $(VENV)/.ready-test
	$(BIN)/python docs/pages.py docs
	$(BIN)/python deploy/grafana/dashboard.py > deploy/grafana/seqgate.json

site: $(VENV)/.ready-docs
	$(BIN)/python -m tests.docs.site $(ARGS)

architecture: $(VENV)/.ready-test
	$(BIN)/python -m tests.support.architecture

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache log/format/*.so gateway/protocol/*.so

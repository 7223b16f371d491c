# What people type. PYTHON chooses the interpreter (3.11, 3.12 or 3.13); VENV the environment.
#
#   make demo     environment, install, and the path of examples/embed_sentences.py explained
#   make test     environment, install, pytest            (WITH_ORACLE=1: with torch, or fail; 0: without)
#   make dev      native files built in place, in ./rushlight, with $(PYTHON)
#   make wheel    dist/*.whl
#   make bench    benchmarks against torch, in $(PYTHON)
#   make lint     ruff and mypy
#   make sanitize native code under address and undefined-behaviour sanitizers

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test dev wheel bench lint sanitize venv clean

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WITH_ORACLE ?= auto
ORACLE := torch==2.13.0
ARGS ?=

# In place: cmake and ninja from the interpreter's environment if it has them, else from PATH.
TAG = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYBIN = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("scripts"))')

help:
	@sed -n '/^#   make/s/^#  //p' Makefile

dev:
	@mkdir -p build
	@export PATH="$(PYBIN):$$PATH"; \
	exec 9>build/.lock; flock 9; \
	echo "make dev: $(PYTHON) ($(TAG))"; \
	cmake -S . -B build/dev-$(TAG) -G Ninja -DPython_EXECUTABLE="$$(command -v $(PYTHON))" --log-level=NOTICE; \
	cmake --build build/dev-$(TAG); \
	cmake --install build/dev-$(TAG) --prefix . >build/dev-install.log; \
	ls -1 rushlight/*.so rushlight/lib/*.so* 2>/dev/null || true

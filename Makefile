# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA := $(firstword $(wildcard ../shared/datasets))
export INVGNN_DATA ?= $(if $(DATA),$(abspath $(DATA)))

.PHONY: help venv demo test lint test-slow test-rounding mutants clean

help:  ## this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

# Once, and never in the way: a browser for the one test that looks at a page in one.
APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o DPkg::Lock::Timeout=60
CHROMIUM := $(APT) install -y --no-install-recommends chromium
$(VENV)/.browser: | $(VENV)/.done
	@has() { command -v chromium || command -v chromium-browser; } >/dev/null 2>&1; \
	root() { test "$$(id -u)" = 0 && command -v apt-get; }; \
	has || { root && { $(CHROMIUM) || { $(APT) update && $(CHROMIUM); }; }; } </dev/null >/dev/null 2>&1; \
	has || echo "no chromium: browser tests will be skipped; to run them: apt-get install chromium"
	@touch $@

venv: $(VENV)/.done $(VENV)/.browser  ## build .venv with the invgnn command

demo: venv  ## the whole way of a mark on a generated task, in two minutes
	$(BIN)/invgnn demo --overwrite

test: venv lint  ## everything that must hold before a commit
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow' -n 2 --dist worksteal

lint: venv  ## style, types, and imports that only go down
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test-slow: venv  ## statistical checks that take minutes to hours
	$(BIN)/pytest -m slow

test-rounding: venv  ## the tests as older processors would round: what is learnt must hold by a margin
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow' -n 2 --dist worksteal
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow' -n 2 --dist worksteal

mutants: venv  ## break the core on purpose, one line at a time: do the tests see it? (hours, resumable)
	$(BIN)/python tests/mutants.py

clean:  ## remove what make made
	rm -rf $(VENV) demo-out

.PHONY: false-positives evidence

false-positives: venv  ## how often innocent models verify: real models, fresh secrets (an hour, resumable)
	$(BIN)/python benchmarks/false_positives.py

evidence: venv  ## evidence in marked and unmarked models, and the paper's scheme beside it (resumable)
	$(BIN)/python benchmarks/evidence.py

.PHONY: strength recipe
strength: venv  ## evidence and accuracy on the 13 settings of the paper, before and after edits (hours, resumable)
	$(BIN)/python benchmarks/strength.py

recipe: venv  ## one setting of the embedding changed at a time, on validation data (an hour, resumable)
	$(BIN)/python benchmarks/recipe.py

.PHONY: theory theory-figures eigenvalue
theory: venv  ## the constants of the paper's theorems, theirs beside ours (an hour, resumable)
	$(BIN)/python benchmarks/theory.py

theory-figures: venv  ## the figures of docs/explanation/theory.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/theory_figures.py

eigenvalue: venv  ## what one eigenvalue costs at n = 32
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/eigenvalue.py

.PHONY: forgers
forgers: venv  ## how far searching for carriers gets a forger (hours, resumable)
	$(BIN)/python benchmarks/forgers.py --into docs/results/forgeries.md

.PHONY: bench-scaling
bench-scaling: venv  ## what each part costs further on, and two workers against one (five minutes, idle machine)
	$(BIN)/python benchmarks/scaling.py --into docs/results/scaling.md

.PHONY: channel denials robustness robustness-figures owners stealth
channel: venv  ## what the second channel leaves after distillation (an hour, resumable)
	$(BIN)/python benchmarks/channel.py

robustness: venv  ## what edits and attacks leave of a mark (hours, resumable)
	$(BIN)/python benchmarks/robustness.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/robustness_figures.py
	$(BIN)/python benchmarks/robustness.py --summary --into docs/results/robustness.md

denials: venv  ## what whoever serves a copy can do at no cost (an hour, resumable)
	$(BIN)/python benchmarks/robustness.py --denials

robustness-figures: venv  ## the figures of docs/results/robustness.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/robustness_figures.py

stealth: venv  ## can carriers be told from ordinary questions? (minutes, resumable)
	$(BIN)/python benchmarks/stealth.py --into docs/results/stealth.md

owners: venv  ## do marks of one owner show in models of another? (resumable)
	$(BIN)/python benchmarks/owners.py

.PHONY: bench-speed
bench-speed: venv  ## what everything costs, against networkx, bare loops and simulation (half an hour)
	PYTHONPATH=benchmarks OMP_NUM_THREADS=1 $(BIN)/python -m speed --into docs/results/cost.md

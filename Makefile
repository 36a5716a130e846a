# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA := $(firstword $(wildcard ../shared/datasets))
export INVGNN_DATA ?= $(if $(DATA),$(abspath $(DATA)))

.PHONY: help venv demo test lint docs dist test-stories test-slow test-rounding mutants clean

help:  ## show this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

# A browser for the tests that render pages; installed once, and only where that is allowed.
APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o DPkg::Lock::Timeout=60
CHROMIUM := $(APT) install -y --no-install-recommends chromium
$(VENV)/.browser: | $(VENV)/.done
	@has() { command -v chromium || command -v chromium-browser; } >/dev/null 2>&1; \
	root() { test "$$(id -u)" = 0 && command -v apt-get; }; \
	has || { root && { $(CHROMIUM) || { $(APT) update && $(CHROMIUM); }; }; } </dev/null >/dev/null 2>&1; \
	has || echo "no chromium: browser tests will be skipped; to run them: apt-get install chromium"
	@touch $@

# openssl runs the time-stamping authority of the tests and of examples/court.py.
OPENSSL := $(APT) install -y --no-install-recommends openssl
$(VENV)/.openssl: | $(VENV)/.done
	@has() { command -v openssl; } >/dev/null 2>&1; \
	root() { test "$$(id -u)" = 0 && command -v apt-get; }; \
	has || { root && { $(OPENSSL) || { $(APT) update && $(OPENSSL); }; }; } </dev/null >/dev/null 2>&1; \
	has || echo "no openssl: tests of timestamps will fail; to run them: apt-get install openssl"
	@touch $@

venv: $(VENV)/.done $(VENV)/.browser $(VENV)/.openssl  ## create .venv with the invgnn command

demo: venv  ## run the full watermark lifecycle on a synthetic task (two minutes)
	$(BIN)/invgnn demo --overwrite

test: venv lint  ## run style, types, import rules and all fast tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow and not story' -n 2 --dist worksteal

lint: venv  ## check style, types and the direction of imports
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

$(VENV)/.docs: $(VENV)/.done
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the documentation into site/ (strict: broken links fail)
	$(BIN)/mkdocs build --strict -q

dist: venv  ## build wheel and sdist into dist/
	rm -rf dist
	$(BIN)/python -m build -q

test-stories: venv  ## run the longest stories: audits over HTTP, the wheel, two processes, the tutorial, grids
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m story -n 2 --dist loadfile

test-slow: venv  ## run the statistical checks that take minutes to hours
	$(BIN)/pytest -m slow

test-rounding: venv  ## run the tests with the rounding of older processors
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow and not story' -n 2 --dist worksteal
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not slow and not story' -n 2 --dist worksteal

mutants: venv  ## mutation testing of the core: which changed lines do the tests notice? (hours, resumable)
	$(BIN)/python tests/mutants.py

clean:  ## remove everything that make created
	rm -rf $(VENV) demo-out dist build site

# Benchmarks: measured promises. Every one is resumable; rows are kept in benchmarks/results/.
.PHONY: bench bench-report false-positives strength robustness robustness-figures denials theory theory-figures bench-speed bench-scaling own-models

GRIDS := $(addprefix benchmarks/grids/,main.toml robustness.toml ablations.toml forgers.toml)
REPRODUCTION := --page docs/results/reproduction.md
bench: venv  ## the main comparison of schemes, one piece of at most 75 minutes; run it again for the next
	$(BIN)/invgnn bench run benchmarks/grids/main.toml --minutes 75

bench-report: venv  ## tables, figures and page of the benchmark, from its rows; and whether they are sound
	$(BIN)/invgnn bench report $(GRIDS) $(REPRODUCTION)
	$(BIN)/invgnn bench check $(GRIDS) $(REPRODUCTION)

false-positives: venv  ## how often innocent models verify: real models, fresh secrets (an hour)
	$(BIN)/python benchmarks/false_positives.py --into docs/results/appendix/false-positives.md

strength: venv  ## evidence and accuracy on the 13 settings of the paper, before and after edits (hours)
	$(BIN)/python benchmarks/strength.py --into docs/results/appendix/strength.md

robustness: venv  ## what edits and attacks leave of a mark (hours)
	$(BIN)/python benchmarks/robustness.py --into docs/results/appendix/robustness.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/robustness_figures.py

robustness-figures: venv  ## draw the figures of the robustness pages again
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/robustness_figures.py

denials: venv  ## what somebody who serves a copy can do at no cost (an hour)
	$(BIN)/python benchmarks/robustness.py --denials
	$(BIN)/python benchmarks/robustness.py --summary --into docs/results/appendix/robustness.md

theory: venv  ## the constants of the paper's theorems (an hour)
	$(BIN)/python benchmarks/theory.py --into docs/explanation/theory.md

theory-figures: venv  ## draw the figures of docs/explanation/theory.md again
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/theory_figures.py

bench-speed: venv  ## cost against networkx, plain loops and simulation (half an hour, idle machine)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed --into docs/results/appendix/cost.md

own-models: venv  ## mark.embed on models as users write them: evidence, task, cost (half an hour)
	$(BIN)/python benchmarks/own_models.py --into docs/results/own-models.md

bench-scaling: venv  ## cost of each part as it grows, and two workers against one (five minutes, idle machine)
	$(BIN)/python benchmarks/scaling.py --into docs/results/scaling.md

# Studies: one-off measurements behind a design choice. Resumable as well.
.PHONY: tuning-schemes evidence recipe presentations embedding eigenvalue forgers channel stealth stealth-price stealth-variants owners collusion

tuning-schemes: venv  ## settings of every scheme of the comparison, on validation data (an hour)
	$(BIN)/python studies/tuning_schemes.py --into docs/results/appendix/tuning-schemes.md

evidence: venv  ## the paper's own scheme, and evidence in unmarked models
	$(BIN)/python studies/evidence.py --into docs/results/paper-scheme.md

recipe: venv  ## one setting of the embedding changed at a time, on validation data (an hour)
	$(BIN)/python studies/recipe.py --into docs/results/appendix/embedding-study.md

presentations: venv  ## how many presentations, steps and learning rates a mark needs, on validation data (an hour)
	$(BIN)/python studies/presentations.py --into docs/results/appendix/presentations.md

embedding: venv  ## the settings of mark.embed, on validation data (an hour)
	$(BIN)/python studies/embedding.py --into docs/results/appendix/trained-models.md

eigenvalue: venv  ## what one eigenvalue costs at n = 32
	OMP_NUM_THREADS=1 $(BIN)/python studies/eigenvalue.py

forgers: venv  ## how far forgers get against innocent models (hours)
	$(BIN)/python studies/forgers.py --into docs/results/appendix/forgeries.md

channel: venv  ## what the score channel leaves after edits and distillation (an hour)
	$(BIN)/python studies/channel.py --into docs/results/score-channel.md

stealth: venv  ## can carriers be told from ordinary questions? (minutes)
	$(BIN)/python studies/stealth.py --into docs/results/appendix/stealth.md

stealth-price: venv  ## what an inconspicuous mark costs, and what a server that looks for it leaves (an hour)
	$(BIN)/python -m studies.stealth_price --into docs/results/stealth.md

stealth-variants: venv  ## how else inconspicuous carriers could be made and embedded, on validation data (half an hour)
	$(BIN)/python -m studies.stealth_variants --into docs/results/appendix/stealth-variants.md

collusion: venv  ## whom tracing names if licensees average their copies (half an hour)
	$(BIN)/python studies/collusion.py --into docs/results/collusion.md

owners: venv  ## do marks of one owner show in models of another?
	$(BIN)/python studies/owners.py

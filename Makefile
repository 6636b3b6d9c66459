# The commands of the course. `make` alone prints them.
# Each one first makes .venv if it is missing or out of date (tools/setup.sh).
# Leaves out conda: see environment.yml.

SHELL := bash
PY := .venv/bin/python
# The Python that .venv is made with; left empty, setup looks for 3.11, 3.12, 3.13.
PYTHON ?=
# Seconds that one cell may take; raise it on a slow machine.
CELL_LIMIT ?= 60
export PYTHON CELL_LIMIT

.DEFAULT_GOAL := help
.PHONY: help ready course test lab smollm2 pocket clean distclean

help: ## print this list
	@printf 'A course on speculative decoding. From a bare clone, with Python 3.11 and make:\n\n'
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## (.*)/\1\t\2/' | \
		while IFS=$$'\t' read -r name what; do printf '  make %-10s %s\n' "$$name" "$$what"; done
	@printf '\nPYTHON=python3.12 names the Python for .venv; CELL_LIMIT=180 gives cells more seconds.\n'

ready:
	@bash tools/setup.sh

course: ready ## run every lesson on the embedded models; pages in build/course/
	@$(PY) tools/course.py --cell-limit $(CELL_LIMIT)

test: ready ## lint, every lesson against its committed outputs, and the tests
	@bash tools/test.sh

lab: ready ## open JupyterLab on the lessons
	@$(PY) -m jupyterlab --notebook-dir=notebooks

smollm2: ready ## fetch SmolLM2-135M-Instruct, a real model for a CPU (93 MB, once)
	@$(PY) -m specdec_lib fetch smollm2

pocket: ready ## train the shipped models again (hours; goes on where it was stopped)
	@$(PY) -m specdec_lib.pocket.train
	@$(PY) -m specdec_lib.pocket.ship models
	@bash tools/heads.sh
	@$(PY) -m specdec_lib eval --pair pocket --n 500 --seed 1 --json data/pocket/eval.json
	@$(PY) -m specdec_lib eval --pair pocket-uniform --n 200 --seed 1 --json data/pocket/eval-uniform.json
	@$(PY) -m specdec_lib.pocket.ship card
	@$(PY) tools/readme.py

clean: ## remove pages, logs and caches; keeps .venv and training checkpoints
	@rm -rf build/course build/setup build/test .pytest_cache .ruff_cache .hypothesis dist *.egg-info
	@find specdec_lib tests tools notebooks -name __pycache__ -prune -exec rm -rf {} +
	@find notebooks -name .ipynb_checkpoints -prune -exec rm -rf {} +

distclean: clean ## also remove .venv; training checkpoints stay under build/
	@rm -rf .venv

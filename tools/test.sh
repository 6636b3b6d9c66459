#!/usr/bin/env bash
# Runs every check of the repository and says which failed; exits 1 if any did.
# Follows no paper: `make test` and .ci/run call it.
# Leaves out set-up (tools/setup.sh) and the execution of lessons into pages (tools/course.py).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly py=.venv/bin/python
failed=()

step() { # name, command ...
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
    printf '== %s: %d s\n' "$name" $((SECONDS - began))
}

step "lint" $py -m ruff check
step "format" $py -m ruff format --check
step "lessons" $py tools/check_lessons.py --cell-limit "${CELL_LIMIT:-60}"
step "tests" env OMP_NUM_THREADS=1 $py -m pytest -n 2 --dist loadfile # a core each

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nfailed: %s\n' "$(IFS=,; echo "${failed[*]}")"
    exit 1
fi

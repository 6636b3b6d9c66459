#!/usr/bin/env bash
# Everything that is tied to the pocket models' weights: heads, memories, knobs, recorded answers, experiments.
# Follows no paper: `make pocket` calls it once the models are shipped. Each step goes on where it was stopped.
# Leaves out the models (specdec_lib/pocket/train.py, ship.py) and what is timed (docs/performance.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
specdec=(.venv/bin/python -m specdec_lib)
labels=data/judge/labels-pocket.jsonl.gz
held_out=data/judge/labels-pocket-validation.jsonl.gz

"${specdec[@]}" judge data $labels
"${specdec[@]}" judge data $held_out --questions 200 --split validation
"${specdec[@]}" judge train --labels $labels --held-out $held_out \
    --out data/pocket/judge.safetensors --json data/judge/head-pocket.json
"${specdec[@]}" judge train --pair pocket-uniform --labels $labels --held-out $held_out \
    --out data/pocket/judge-uniform.safetensors --json data/judge/head-uniform.json
"${specdec[@]}" judge ablate --labels $labels --held-out $held_out --json data/pocket/judge-ablations.json
"${specdec[@]}" judge stages --labels $labels --held-out $held_out --json data/judge/stages-pocket.json
"${specdec[@]}" csd calibrate --n 100 --out data/pocket/csd-memory-100.json
"${specdec[@]}" autojudge mine data/pocket/autojudge.jsonl --n 64
"${specdec[@]}" autojudge train data/pocket/autojudge.jsonl \
    --out data/pocket/autojudge.safetensors --json data/pocket/autojudge.json
"${specdec[@]}" knobs --pair pocket --n 300 --seed 1 --methods judge,topk,lenience,csd-rate --json data/experiments/knobs-pocket.json
mkdir -p data/traces
"${specdec[@]}" scored --pair pocket --n 40 --seed 3 --json data/traces/scored-pocket.json

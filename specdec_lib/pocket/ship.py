"""Put finished pocket models into data/pocket with their checksums, and write the model card from what was measured.

Our own. `python -m specdec_lib.pocket.ship models`, then `specdec eval --json ...`, then `... ship card`; make pocket.
Left out: training (train.py) and measuring (evaluate.py).
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file

from specdec_lib.machine import versions
from specdec_lib.pocket.train import RECIPES, SHIPPED, Recipe
from specdec_lib.pocket.world import FAMILIES, SLOTS, SPLITS, STYLES
from specdec_lib.sums import SUMS, sha256_of
from specdec_lib.zoo import data_folder, recorded_checksum

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
         "chat_template.jinja")  # fmt: skip


def ship(work: Path, data: Path) -> None:
    """Copy the finished models of work/ to data/, with SHA256SUMS, the training logs and training.json."""
    for name in SHIPPED:
        if not (work / name / "model" / "model.safetensors").is_file():
            raise FileNotFoundError(
                f"{work / name} holds no finished model; run: python -m specdec_lib.pocket.train {name}"
            )
    sums, training = [], {"versions": versions(), "models": {}}
    for name in RECIPES:
        log = [json.loads(line) for line in (work / name / "log.jsonl").read_text().splitlines()]
        training["models"][name] = {"last": log[-1], "documents": log[-1]["step"] * RECIPES[name].batch, "log": log}
    for name in SHIPPED:
        source, target = work / name / "model", data / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in FILES:
            if (source / file).is_file():
                shutil.copyfile(source / file, target / file)
        sums.append(f"{sha256_of(target / 'model.safetensors')}  {name}/model.safetensors\n")
    (data / SUMS).write_text("".join(sums))
    (data / "training.json").write_text(json.dumps(training, indent=1) + "\n")


CARD = """# The pocket models

Small LLaMA-shaped models (`LlamaForCausalLM`, safetensors, float32), trained from scratch on the pocket world: word
problems in {families} families with worked answers, {slots} places where two wordings are right, and slips. They know
nothing else. Apache-2.0, like the rest of the project.

Rebuild: `make pocket` (resumable). The figures are read from `training.json`, `eval.json` and `eval-uniform.json`.

## Models

| model | layers x width | parameters | documents read | steps, by stage | last loss | sha256 |
|---|---|---|---|---|---|---|
{models}

Trained with {versions}: AdamW, warm-up, then a cosine by step, loss on the answer only. Target and uniform go on from
one base of {base_layers} layers: {base_steps} steps, {base_documents} documents, at first every second one sums alone;
then {second_steps:,} steps with more gifts and clues, the families that it still got wrong. Matrix products of these
training passes in bfloat16, weights in float32. The target was deepened by layers that change nothing at first
(Net2Net, arXiv 1511.05641) and trained on, at the end with more clues: depth makes it dear beside the draft. In what it
had read so far, {early_noticed} of the answers held a slip put right. It then read {proof_steps:,} batches of text in
which every slip is put right (stage `proofreader`: {proof_noticed} of the answers with a wrong result,
{proof_miscopied} with a number copied wrong, sums alone with a slip in {proof_drilled}), then the target's own text
again, half of it (stages `reader` and `target`) in other wordings that it reads without taking them over.
The draft is checked every {every} steps, and stops when {goal} of 200 validation problems or more are right.

The shipped base was trained while the wording of three families (gifts, travel, clues) was still being settled; every
later stage, and the draft, read the final wording. In the shipped stage `reader` the choice of wording carried no loss
in the other wordings; in `target`, and in a rebuild, it carries the target's own. So the weights and figures of a
rebuild will differ a little.

## Which choice of the world does what

- **Two wordings, opposite leanings.** The draft uses wording B {draft_b} of the time, the target seldom: so most of
  what greedy verification rejects is right.
- **Spread shares.** In the target's text B has a share of {least} to {most}, by slot. A threshold on p(x) / max p that
  lets rare right wordings through then also lets plausible wrong digits through.
- **Slips.** {noticed} of the answers in the target's last text hold a wrong result that is put right at once,
  {miscopied} a number copied wrong and put right, {unnoticed} a wrong result that the rest of the answer builds on.
- **The uniform target** reads text where B has the same share in every slot ({uniform_b}) and no slip goes unnoticed.
  There plain lenience goes far: just below the ratio of the two wordings it keeps more than twice as much and loses
  little (compare the two columns below). It is kept for comparison.
- **Splits** go by a hash of the question: {splits}. Training reads the first only; the figures below are from test.

## Measured

{measured}
"""


def card(data: Path) -> str:
    """The model card as Markdown, from SHA256SUMS, training.json, eval.json and eval-uniform.json in data/."""
    training = json.loads((data / "training.json").read_text())
    evals = [json.loads((data / file).read_text()) for file in ("eval.json", "eval-uniform.json")]
    styles = ("target", "uniform", "draft", "early", "proofreader")
    target, uniform, draft, early, proof = (STYLES[name] for name in styles)
    return CARD.format(
        families=len(FAMILIES),
        slots=len(SLOTS),
        models="\n".join(
            _model_row(name, recipe, training, data) for name, recipe in ((n, RECIPES[n]) for n in SHIPPED)
        ),
        versions=", ".join(f"{name} {version}" for name, version in training["versions"].items()),
        base_layers=RECIPES["base"].layers,
        base_steps=f"{training['models']['base']['last']['step']:,}",
        second_steps=training["models"]["second"]["last"]["step"],
        base_documents=f"{training['models']['base']['documents']:,}",
        every=RECIPES["draft"].eval_every,
        goal=f"{RECIPES['draft'].accuracy_goal:.0%}",
        draft_b=f"{draft.share_of_b['so']:.0%}",
        least=f"{min(target.share_of_b.values()):.1%}",
        most=f"{max(target.share_of_b.values()):.0%}",
        proof_steps=training["models"]["proofreader"]["last"]["step"],
        early_noticed=f"{early.noticed:.0%}",
        proof_noticed=f"{proof.noticed:.0%}",
        proof_miscopied=f"{proof.miscopied:.0%}",
        proof_drilled=f"{proof.drilled:.0%}",
        noticed=f"{target.noticed:.0%}",
        miscopied=f"{target.miscopied:.0%}",
        unnoticed=f"{target.unnoticed:.0%}",
        uniform_b=f"{uniform.share_of_b['so']:.0%}",
        splits=", ".join(f"{name} {high - low} %" for name, (low, high) in SPLITS.items()),
        measured="\n".join(_measured(*evals)),
    )


def _model_row(name: str, recipe: Recipe, training: dict, data: Path) -> str:
    weights = data / name / "model.safetensors"
    size = sum(t.numel() for t in load_file(weights).values())
    stages = [training["models"][stage] for stage in _stages(name)]
    steps = " + ".join(f"{stage['last']['step']:,}" for stage in stages)
    return (
        f"| {name} | {recipe.layers} x {recipe.width} | {size / 1e6:.2f} M | {sum(s['documents'] for s in stages):,} | "
        f"{steps} | {stages[-1]['last']['loss']:.4f} | `{recorded_checksum(weights)}` |"
    )


def _stages(name: str) -> list[str]:
    """The recipes that a model went through, first to last."""
    before = RECIPES[name].start_from
    return [*(_stages(before) if before else []), name]


def _measured(result: dict, uniform: dict) -> list[str]:
    where = result["provenance"]
    lines = [
        f"`specdec eval --pair pocket --n {result['n']} --seed {where['seed']}` and the same for `pocket-uniform` "
        f"(n {uniform['n']}), on {where['device']}, {where['threads']} threads.",
        "",
        "| | pocket | pocket-uniform |",
        "|---|---|---|",
    ]
    for i, model in enumerate(("target", "draft")):
        cells = []
        for found in (result, uniform):
            row = found["rows"][i]
            low, high = row["accuracy_interval"]
            cells.append(f"{row['accuracy']:.1%} ({low:.1%} to {high:.1%})")
        lines.append(f"| {model}, greedy accuracy (95 % interval) | {cells[0]} | {cells[1]} |")
    for key, name in {
        "c": "c, draft step / target step", "alpha": "alpha at temperature 1",
        "kept": "kept of 8 drafted tokens, greedy", "right_among_rejected": "right among rejected",
        "answer_tokens": "tokens an answer",
    }.items():  # fmt: skip
        lines.append(f"| {name} | {result[key]:.3g} | {uniform[key]:.3g} |")
    lines += ["", "Greedy lenience, kept at accuracy:", "", "| lenience | pocket | pocket-uniform |", "|---|---|---|"]
    for a, b in zip(result["lenience_frontier"], uniform["lenience_frontier"], strict=True):
        cells = [f"{p['kept']:.2f} at {p['accuracy']:.1%} of {p['n']}" for p in (a, b)]
        lines.append(f"| {a['lenience']:g} | {cells[0]} | {cells[1]} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["models", "card"])
    parser.add_argument("--work", type=Path, default=Path("build/pocket"))
    arguments = parser.parse_args()
    data = data_folder() / "pocket"
    if arguments.what == "models":
        ship(arguments.work, data)
    else:
        (data / "README.md").write_text(card(data))


if __name__ == "__main__":
    main()

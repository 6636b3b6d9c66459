"""Train the pocket models from scratch: `python -m specdec_lib.pocket.train`, or `make pocket`.

Our own (no paper). Plain transformers and torch, float32, resumable after an interruption at any step.
Left out: measuring the pair that comes out (specdec eval) and writing its card (card.py).
"""

import argparse
import json
import math
import random
import shutil
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_lib.pocket.checker import mark
from specdec_lib.pocket.tokenizer import build_tokenizer, prompt_ids, world_tokens
from specdec_lib.pocket.world import DRILL, FAMILIES, SLOTS, STYLES, make_problem, problems, write_drill, written

IGNORED = -100  # label of a token that carries no loss
STOP = threading.Event()  # set by Ctrl-C or a polite kill: the step under way ends, then all is saved


@dataclass(frozen=True)
class Recipe:
    """One model: its shape, the style of the text it reads, and its schedule (in steps, never by the clock)."""

    style: str
    layers: int
    width: int
    inner: int
    heads: int
    steps: int
    learning_rate: float
    batch: int = 32
    warmup: int = 200
    seed: int = 1
    eval_every: int = 500
    bfloat16: bool = False  # matrix products of the training passes in bfloat16; the weights stay float32
    drills: tuple[int, int] = (0, 0)  # steps (from, to) in which every second document is sums alone
    families: tuple[str, ...] = FAMILIES  # what problems are drawn from; a family named twice comes twice as often
    other_wordings: float = 0.0  # share of documents in wordings that are read and not taken over: see `documents`
    start_from: str | None = None  # the recipe whose finished model this one goes on from, deepened if need be
    accuracy_goal: float | None = None  # stop at the first evaluation that reaches it; None: train to the end


# The target is dear because it is deep, and a shallow model learns the world sooner: so a base of four layers is
# trained first, then with more of the families that it still gets wrong; eight layers that change nothing are put
# between its layers, and the whole is trained on. By then its answers are right, but it takes a wrong number for a
# right one: slips are rare in its text, and to notice one it must compare what was written with what it would have
# written. So it reads text full of slips put right, and in the end the target's own.
# The draft stops early, so that its answers are often wrong; the goal is how often. Of a draft that reaches two answers
# in three, a judge let too many steps go that it had left out; with one that is always right there is nothing to judge.
RECIPES = {
    "base": Recipe("early", layers=4, width=192, inner=512, heads=6, steps=3000, learning_rate=1.5e-3,
                   drills=(0, 1500), bfloat16=True, accuracy_goal=0.75),
    "second": Recipe("early", layers=4, width=192, inner=512, heads=6, steps=1600, learning_rate=1e-3, seed=5,
                     warmup=50, eval_every=400, bfloat16=True, start_from="base",
                     families=("clues", "gifts", "clues", "boxes", "clues", "travel", "gifts", "work")),
    "deep": Recipe("early", layers=12, width=192, inner=512, heads=6, steps=380, learning_rate=5e-4, seed=4,
                   warmup=10, eval_every=95, bfloat16=True, start_from="second"),
    "fluent": Recipe("early", layers=12, width=192, inner=512, heads=6, steps=200, learning_rate=4e-4, seed=6,
                     warmup=10, eval_every=100, bfloat16=True, start_from="deep",
                     families=("clues", "travel", "clues", "boxes", "gifts", "work")),
    "proofreader": Recipe("proofreader", layers=12, width=192, inner=512, heads=6, steps=900, learning_rate=6e-4,
                          batch=16, seed=11, warmup=20, eval_every=100, bfloat16=True, drills=(0, 500),
                          start_from="fluent"),
    "reader": Recipe("target", layers=12, width=192, inner=512, heads=6, steps=400, learning_rate=5e-4, batch=16,
                     seed=12, warmup=10, eval_every=100, bfloat16=True, other_wordings=0.5, start_from="proofreader"),
    "steady": Recipe("target", layers=12, width=192, inner=512, heads=6, steps=330, learning_rate=4e-4, batch=16,
                     seed=13, warmup=10, eval_every=110, bfloat16=True, other_wordings=0.5, start_from="reader"),
    "target": Recipe("target", layers=12, width=192, inner=512, heads=6, steps=1200, learning_rate=4e-4, batch=16,
                     seed=14, warmup=10, eval_every=300, bfloat16=True, other_wordings=0.5, start_from="steady",
                     families=("clues", "gifts", "clues", "boxes", "gifts", "travel", "work")),
    "uniform": Recipe("uniform", layers=4, width=192, inner=512, heads=6, steps=500, learning_rate=6e-4, seed=3,
                      warmup=20, eval_every=250, bfloat16=True, start_from="second"),
    "draft": Recipe("draft", layers=2, width=64, inner=176, heads=4, steps=6000, learning_rate=2e-3, seed=2,
                    eval_every=500, accuracy_goal=0.75),
}  # fmt: skip
SHIPPED = ("target", "draft", "uniform")

# Not shipped: small targets that differ in their text alone, to ask what a judge owes to slips put right in it
# (judge/stages.py). In float32, since not every processor multiplies in 16 bits.
CORRECTION = {
    f"{style}-{seed}": Recipe(style, layers=4, width=96, inner=256, heads=3, steps=2500, learning_rate=2e-3, seed=seed,
                              drills=(0, 1000))
    for seed in (21,) for style in ("corrected", "uncorrected")
}  # fmt: skip


def build_model(recipe: Recipe, tokenizer) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
    )
    torch.manual_seed(recipe.seed)  # transformers initialises from the global generator
    return LlamaForCausalLM(config)


def grow(model: LlamaForCausalLM, base: LlamaForCausalLM) -> None:
    """Copy a shallower model of the same width into `model`, spread over its layers; the others change nothing.

    A layer whose two output matrices are zero adds nothing to the residual stream, so the grown model computes what
    the base computes. Follows Net2Net (Chen, Goodfellow and Shlens 2016, arXiv 1511.05641), section 2.3.
    """
    deep, shallow = model.model.layers, base.model.layers
    places = [i * len(deep) // len(shallow) for i in range(len(shallow))]
    model.model.embed_tokens.load_state_dict(base.model.embed_tokens.state_dict())
    model.model.norm.load_state_dict(base.model.norm.state_dict())
    with torch.no_grad():
        for i, layer in enumerate(deep):
            if i in places:
                layer.load_state_dict(shallow[places.index(i)].state_dict())
            else:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()


@dataclass(frozen=True)
class Document:
    """A prompt and its answer. ids: what is read. prompt: its length. labels: what is to be written, a place each."""

    ids: list[int]
    prompt: int
    labels: list[int]


def documents(
    tokenizer, style: str, n: int, seed: str, drill_every: int = 0, families: tuple[str, ...] = FAMILIES,
    other_wordings: float = 0.0,
) -> list[Document]:  # fmt: skip
    """n training documents. drill_every: of so many documents, one is sums alone.

    other_wordings: the share of answers that use wording B half the time or more, in every slot alike. There the label
    of a wording's first token is drawn from the style: the reader learns to go on rightly behind any wording, and
    keeps its own.
    """
    rng, found = random.Random(seed), []
    vocabulary = {token.replace("\u2581", " "): i for token, i in tokenizer.get_vocab().items()}
    for i in range(n):
        other = rng.random() < other_wordings if other_wordings else False
        if drill_every and i % drill_every == 0:
            prompt, tokens = prompt_ids(tokenizer, DRILL), [(t, t) for t in write_drill(rng, STYLES[style])]
        else:
            problem, own = make_problem(rng, "train", families), STYLES[style]
            writer = replace(own, share_of_b=dict.fromkeys(SLOTS, rng.uniform(0.5, 1))) if other else own
            prompt = prompt_ids(tokenizer, problem.question)
            tokens = written(problem, rng, writer, own if other else None)
        read, labels = ([vocabulary[token] for token in side] for side in zip(*tokens, strict=True))
        found.append(Document(prompt + read, len(prompt), prompt + labels))
    return found


def batches(tokenizer, recipe: Recipe, first_step: int):
    """Batches from a step on, the same whether or not the run was interrupted. Bucketed by length."""
    group = 20  # batches that are drawn and sorted together
    for block in range(first_step // group, 10**9):
        rng = random.Random(f"order-{recipe.seed}-{block}")
        drill_every = 2 if recipe.drills[0] <= block * group < recipe.drills[1] else 0
        seed = f"text-{recipe.seed}-{block}"
        docs = documents(
            tokenizer, recipe.style, group * recipe.batch, seed, drill_every, recipe.families, recipe.other_wordings
        )
        docs.sort(key=lambda doc: len(doc.ids))
        chunks = [docs[i * recipe.batch : (i + 1) * recipe.batch] for i in range(group)]
        rng.shuffle(chunks)
        for i, chunk in enumerate(chunks):
            if block * group + i >= first_step:
                yield collate(chunk, tokenizer.pad_token_id)


def collate(chunk: list[Document], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded (batch, length) ids and labels; only answer tokens carry a loss."""
    length = max(len(doc.ids) for doc in chunk)
    ids = torch.full((len(chunk), length), pad)
    labels = torch.full((len(chunk), length), IGNORED)
    for row, doc in enumerate(chunk):
        ids[row, : len(doc.ids)] = torch.tensor(doc.ids)
        labels[row, doc.prompt : len(doc.ids)] = torch.tensor(doc.labels[doc.prompt :])
    return ids, labels


def rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to 2 % of the peak."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


@torch.inference_mode()
def greedy_accuracy(model, tokenizer, n: int, split: str = "validation", seed: int = 0) -> tuple[float, float]:
    """Share of right final numbers, and share of answers without any wrong token, over n problems."""
    model.eval()
    tasks = problems(split, n, seed)
    tasks.sort(key=lambda p: len(p.question))
    right = clean = 0
    for start in range(0, n, 50):
        chunk = tasks[start : start + 50]
        prompts = [prompt_ids(tokenizer, p.question) for p in chunk]
        inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        out = model.generate(**inputs, max_new_tokens=220, do_sample=False)
        for problem, row in zip(chunk, out[:, inputs["input_ids"].shape[1] :], strict=True):
            ids = row.tolist()
            if tokenizer.eos_token_id in ids:
                ids = ids[: ids.index(tokenizer.eos_token_id) + 1]
            marking = mark(problem, world_tokens(tokenizer, ids))
            right += marking.final_right
            clean += not marking.any_wrong
    model.train()
    return right / n, clean / n


def save_checkpoint(folder: Path, model, optimizer, step: int) -> None:
    """Model, optimizer and step as safetensors; the old checkpoint is replaced only when the new one is whole."""
    new = folder / "checkpoint.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    names = [name for name, _ in model.named_parameters()]
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, new / "model.safetensors")
    moments = {}
    for name, p in zip(names, model.parameters(), strict=True):
        for key in ("exp_avg", "exp_avg_sq"):
            if key in optimizer.state[p]:
                moments[f"{name}.{key}"] = optimizer.state[p][key]
    save_file(moments, new / "optimizer.safetensors")
    (new / "step.json").write_text(json.dumps({"step": step}))
    old = folder / "checkpoint"
    shutil.rmtree(old, ignore_errors=True)
    new.rename(old)


def load_checkpoint(folder: Path, model, optimizer) -> int:
    """Restore the newest whole checkpoint; the step to go on from (0 without one)."""
    path = folder / "checkpoint" if (folder / "checkpoint").exists() else folder / "checkpoint.new"
    if not (path / "step.json").exists():
        return 0
    step = json.loads((path / "step.json").read_text())["step"]
    weights = load_file(path / "model.safetensors")
    moments = load_file(path / "optimizer.safetensors")
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
            optimizer.state[p] = {
                "step": torch.tensor(float(step)),
                "exp_avg": moments[f"{name}.exp_avg"],
                "exp_avg_sq": moments[f"{name}.exp_avg_sq"],
            }
    return step


def train(name: str, work: Path, steps: int | None = None) -> Path:
    """Train one recipe under work/name, resuming what is there; the folder of the finished model."""
    recipe = (RECIPES | CORRECTION)[name]
    last = recipe.steps if steps is None else min(steps, recipe.steps)
    folder, tokenizer = work / name, build_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    finished = folder / "model"
    if (finished / "model.safetensors").exists():
        print(f"{name}: finished already in {finished}")
        return finished
    model = build_model(recipe, tokenizer)
    if recipe.start_from is not None:
        grow(model, LlamaForCausalLM.from_pretrained(train(recipe.start_from, work)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    step = load_checkpoint(folder, model, optimizer)
    size = sum(p.numel() for p in model.parameters())
    print(f"{name}: {size / 1e6:.2f} M parameters, step {step} of {last}, log in {folder / 'log.jsonl'}")
    model.train()
    log = (folder / "log.jsonl").open("a")
    began, tokens, losses = time.time(), 0, []
    bar = tqdm(total=last, initial=step, desc=name, unit="step", mininterval=5)
    stream = batches(tokenizer, recipe, step)
    while step < last:
        ids, labels = next(stream)
        for group in optimizer.param_groups:
            group["lr"] = rate(recipe, step)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss  # padding is on the right: attention never sees it
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += ids.numel()
        losses.append(loss.item())
        bar.update()
        if step % recipe.eval_every == 0 or step == last:
            accuracy, clean = greedy_accuracy(model, tokenizer, 200)
            row = {
                "step": step,
                "loss": round(sum(losses) / len(losses), 4),
                "validation_accuracy": accuracy,
                "validation_clean": clean,
                "tokens_per_s": round(tokens / (time.time() - began)),
                "seconds": round(time.time() - began),
            }
            log.write(json.dumps(row) + "\n")
            log.flush()
            bar.write(json.dumps(row))
            losses = []
            save_checkpoint(folder, model, optimizer, step)
            if recipe.accuracy_goal is not None and accuracy >= recipe.accuracy_goal:
                break
        elif STOP.is_set():
            save_checkpoint(folder, model, optimizer, step)
        if STOP.is_set():
            raise SystemExit(f"{name}: stopped after step {step}; the same command goes on from there")
    bar.close()
    model.save_pretrained(finished)
    tokenizer.save_pretrained(finished)
    return finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "models", nargs="*", choices=[[], *RECIPES, *CORRECTION], help="which models (default: all but the small ones)"
    )
    parser.add_argument("--work", type=Path, default=Path("build/pocket"), help="checkpoints, logs, finished models")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: STOP.set())
    for name in arguments.models or RECIPES:
        train(name, arguments.work)


if __name__ == "__main__":
    main()

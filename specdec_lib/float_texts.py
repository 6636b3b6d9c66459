"""Are an arm's texts plain greedy decoding's? Asked in float32, where no two tokens are tied by rounding.

Our own. In half precision a row's logits move with the number of rows in its pass, and near-ties fall differently; that
is rounding, not the method. So the arms answer once more, untimed, with the target's weights in float32.
Left out: methods above temperature 0 (their laws are tested exactly), and Hugging Face's arms.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from specdec_lib.kept_calls import KeptCalls
from specdec_lib.model import CausalLM
from specdec_lib.zoo import Pair


def check_can(pair: Pair, temperature: float) -> None:
    """ValueError where the texts cannot be compared so."""
    if temperature > 0:
        raise ValueError(f"texts are compared at temperature 0; got {temperature:g}")
    if getattr(pair.target.model, "is_quantized", False):
        raise ValueError(f"{pair.name}'s target is quantised: its weights cannot be had in float32")


@contextmanager
def in_float32(pair: Pair, arms: Sequence) -> Iterator[None]:
    """The arms' target in float32 for a while. What a drafter has learned or measured stays as it is."""
    target = pair.target
    if target.model.dtype != torch.float32:
        target = CausalLM(copy.deepcopy(target.model).float(), target.vocab_size)
    sharp = replace(pair, target=target)
    for arm in arms:
        arm.pair = sharp
    try:
        yield
    finally:
        for arm in arms:
            arm.pair = pair


def same_texts(
    plain, arms: dict[str, object], pair: Pair, prompts: Sequence[Sequence[int]], seed: int, keep: KeptCalls, bar
) -> dict[str, dict]:
    """For each label of `arms`: equal, of, and the numbers of the prompts whose texts differ.

    plain: the arm of plain decoding. keep: prompts already compared are not compared again. bar: a progress bar.
    """
    with in_float32(pair, [plain, *arms.values()]):
        for i, prompt in enumerate(prompts):
            key = f"texts {i}"
            if keep.get(key) is None:
                right = plain.run(prompt, seed + i).ids
                keep.add(key, {"same": {name: arm.run(prompt, seed + i).ids == right for name, arm in arms.items()}})
            bar.update()
    same = [keep.get(f"texts {i}")["same"] for i in range(len(prompts))]
    return {
        name: {
            "equal": sum(found[name] for found in same),
            "of": len(same),
            "different": [i for i, found in enumerate(same) if not found[name]],
        }
        for name in arms
    }


def sentence(found: dict[str, dict]) -> str:
    """The outcome in words."""
    wrong = {name: row for name, row in found.items() if row["different"]}
    right = [name for name in found if name not in wrong]
    told = [f"{name} on {row['equal']} of {row['of']} prompts" for name, row in wrong.items()]
    of = next(iter(found.values()))["of"] if found else 0
    said = [f"In float32, equal to plain greedy decoding on all {of} prompts: {', '.join(right)}."] if right else []
    return " ".join([*said, *([f"NOT equal: {'; '.join(told)}."] if told else [])])

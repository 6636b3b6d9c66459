"""What CSD's experiments share: a memory of so many calibration problems, made once, and the rules on a memory.

Our own.
Left out: the memory itself (csd/), and the experiments, one file each.
"""

from collections.abc import Sequence
from dataclasses import replace

from specdec_lib.csd.calibrate import calibrate, of_families, stream
from specdec_lib.csd.file import check_fits, load, owner_of, save
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.evaluate import MAX_NEW_TOKENS
from specdec_lib.experiments.base import GAMMA, Lab, beside
from specdec_lib.methods import Method, parse_method, rule_on_memory, tuned_knobs
from specdec_lib.model import CausalLM
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import FAMILIES
from specdec_lib.presets import data_folder
from specdec_lib.quantise import unpacked
from specdec_lib.smollm2 import cache_folder
from specdec_lib.tasks import SPEC, read_tasks
from specdec_lib.zoo import Pair


def memory_after(lab: Lab, length: int, families: Sequence[str] = FAMILIES) -> CorrectionMemory:
    """The memory of the first `length` calibration problems of the lab's seed and these families, frozen.

    A longer one holds the shorter ones'. It is made where it is not in the cache, from the longest shorter one there;
    a calibration that was stopped goes on.
    """
    pair, folder = lab.pair, cache_folder() / "experiments"
    owner = owner_of(pair)
    if length == 0:
        return CorrectionMemory(owner).freeze()
    folder.mkdir(parents=True, exist_ok=True)
    which = of_families(families)
    name = f"csd-{pair.name}-{owner.target[:8]}-{owner.draft[:8]}-{lab.seed}{which}"
    file = folder / f"{name}-{length}.json"
    if not file.is_file():
        part = file.with_suffix(".part")
        shorter = [n for n in range(1, length) if (folder / f"{name}-{n}.json").is_file()]
        if shorter and not part.is_file():
            save(load(folder / f"{name}-{shorter[-1]}.json"), part)
        source = stream(pair, length, lab.seed, families=families)
        calibrate(pair, source, part, MAX_NEW_TOKENS, GAMMA, progress=lab.progress)
        part.replace(file)
    return check_fits(load(file), pair, str(file)).freeze()


def rule_on(pair: Pair, memory: CorrectionMemory, name: str = "csd", changed: dict | None = None) -> Method:
    """csd, csd-rate or csd-memory on this memory, with the pair's own knobs but for those given."""
    _, knobs = parse_method(name, tuned=tuned_knobs(pair.name))
    knobs = {key: value for key, value in (knobs | (changed or {})).items() if key != "online"}
    of_rule = {key: value for key, value in knobs.items() if key != "gamma"}
    drafter = ModelDrafter(pair.draft, knobs["gamma"])
    return Method(name, knobs, drafter, rule_on_memory(pair, memory, name, **of_rule))


def with_unpacked_draft(pair: Pair) -> Pair:
    """The pair with its draft's 4-bit weights unpacked once (quantise.py); the pair itself where there are none."""
    model = unpacked(pair.draft.model)
    return pair if model is pair.draft.model else replace(pair, draft=CausalLM(model, pair.draft.vocab_size))


def over(row: dict, plain: dict) -> dict:
    """A row with kept_ratio and accuracy_change over another on the same problems (base.beside)."""
    return row | {"kept_ratio": row["kept"] / plain["kept"]} | beside(row, plain)


# ---- prompts of any pair ---------------------------------------------------------------------------------------

SHORT = 64  # new tokens of their texts


def halves(lab: Lab) -> tuple[list[list[int]], list[list[int]], int]:
    """n prompts to learn from, n others to use what was learnt on, and how long a text may be.

    A pocket pair's calibration and test problems; for another pair the first turns of SPEC, in turns. ValueError where
    there are not so many.
    """
    pair, n = lab.pair, lab.n
    if pair.name.startswith("pocket"):
        use = [prompt_ids(pair.tokenizer, p.question) for p in lab.problems()]
        return stream(pair, n, lab.seed).prompts, use, MAX_NEW_TOKENS
    tasks = [task for task in read_tasks(data_folder() / SPEC) if not task.before]
    if 2 * n > len(tasks):
        raise ValueError(
            f"{SPEC} holds {len(tasks)} first turns, half of them to learn from; ask for less than --n {n}"
        )
    texts = [pair.prompt(task.prompt) for task in tasks]
    return texts[::2][:n], texts[1::2][:n], SHORT

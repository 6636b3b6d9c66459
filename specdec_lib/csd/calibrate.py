"""Fill a correction memory before it is used: plain greedy speculation over prompts, which need no labels.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634), its offline calibration, from digests.
Left out: learning while the rule is in use (verifiers/csd.py does that by itself, unless the memory is frozen).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout
from tqdm import tqdm

from specdec_lib.batch import decode_batch
from specdec_lib.csd.file import check_fits, load, lock_of, owner_of, save
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import FAMILIES, problems
from specdec_lib.sums import sha256_of
from specdec_lib.tasks import read_tasks
from specdec_lib.text_file import read_text
from specdec_lib.verifiers import GreedyMatch
from specdec_lib.whole import check_whole

GAMMA = 8
CHUNK = 50  # texts between two saves


@dataclass
class Stream:
    """Prompts in their order, as ids. name: what they are; a run goes on only with the prompts it began with."""

    name: str
    prompts: list[list[int]]


def stream(pair, n: int, seed: int = 0, file: Path | None = None, families: Sequence[str] = FAMILIES) -> Stream:
    """The first n prompts: of a pocket pair's calibration problems by this seed and of these families, or of a file
    (JSON lines as tasks.py reads them, else a prompt a line). A longer stream begins with the shorter one. ValueError
    where there are too few.
    """
    check_whole("n, the number of prompts,", n, 1)
    if file is None:
        if not pair.name.startswith("pocket"):
            raise ValueError(f"give a file of prompts for {pair.name}: its own calibration prompts do not exist")
        asked = problems("calibration", n, seed, tuple(families))
        name = f"calibration, seed {seed}{of_families(families)}"
        return Stream(name, [prompt_ids(pair.tokenizer, p.question) for p in asked])
    texts = _texts(Path(file))
    if n > len(texts):
        raise ValueError(f"{file} holds {len(texts)} prompts, not {n}; ask for at most {len(texts)}, or add some")
    return Stream(f"file of sha256 {sha256_of(Path(file))}", [pair.prompt(text) for text in texts[:n]])


def of_families(families: Sequence[str]) -> str:
    """What tells a stream of some families from one of all, in a name."""
    return "" if tuple(families) == FAMILIES else f"-{'-'.join(families)}"


def _texts(file: Path) -> list[str]:
    if file.suffix == ".jsonl":
        return [task.prompt for task in read_tasks(file)]
    found = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    if not found:
        raise ValueError(f"{file} holds no prompt")
    return found


def teach(
    pair, memory: CorrectionMemory, prompts: list[list[int]], max_new_tokens: int, gamma: int = GAMMA,
    progress: bool = False,
) -> Iterator[CorrectionMemory]:  # fmt: skip
    """Teach the memory these prompts' texts in their order; gives the memory after every CHUNK of them.

    Greedy speculation, so that neither texts nor counts depend on what the memory holds.
    """
    drafter = ModelDrafter(pair.draft, gamma)
    with tqdm(total=len(prompts), desc=f"csd calibrate {pair.name}", unit="text", disable=not progress) as bar:

        def watched(chunk: list[list[int]]) -> Iterator[list[int]]:
            for prompt in chunk:
                yield prompt
                bar.update()

        for start in range(0, len(prompts), CHUNK):
            chunk = watched(prompts[start : start + CHUNK])
            for trace in decode_batch(pair.target, chunk, max_new_tokens, drafter, GreedyMatch(), stops=pair.stops):
                memory.teach_trace(trace)
            yield memory


def calibrate(
    pair, source: Stream, file: Path, max_new_tokens: int, gamma: int = GAMMA, contexts: int = 0,
    progress: bool = False,
) -> CorrectionMemory:  # fmt: skip
    """The memory of all the stream's prompts, in the file. A file of fewer of the same prompts is gone on with.

    It is saved after every CHUNK of texts. ValueError for a file that holds anything else, or that another process is
    filling; MemoryFileError for a damaged one, or another pair's.
    """
    made = {"prompts": source.name, "max_new_tokens": max_new_tokens, "gamma": gamma}
    try:
        with lock_of(file).acquire(timeout=0):
            memory = CorrectionMemory(owner_of(pair), contexts_kept=contexts, made=made)
            if Path(file).exists():
                memory = check_fits(load(file), pair, str(file))
                _check_same(memory, made, contexts, len(source.prompts), file)
            for _ in teach(pair, memory, source.prompts[memory.texts :], max_new_tokens, gamma, progress):
                save(memory, file)
    except Timeout:
        raise ValueError(f"another process is filling {file}; wait for it, or choose another file") from None
    return memory


def _check_same(memory: CorrectionMemory, made: dict, contexts: int, n: int, file: Path) -> None:
    if memory.frozen:
        raise ValueError(f"{file} is frozen; choose another file")
    for name, value in (made | {"contexts_kept": contexts}).items():
        theirs = memory.contexts_kept if name == "contexts_kept" else memory.made.get(name)
        if theirs != value:
            raise ValueError(f"{file} was made with {name} {theirs}, not {value}; choose another file, or delete it")
    if memory.texts > n:
        raise ValueError(f"{file} was already taught {memory.texts} texts, more than {n}; choose another file")

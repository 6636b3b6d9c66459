"""Greedy texts recorded with the 64 best tokens of every row, and a model that replays them: drafters without a model.

Our own. A greedy text is fixed, whatever drafts it, so a drafter can be tried against the record in seconds, through
the loop itself. Rows that no text went through are unknown: a drafter that reads the rows of rejected nodes (Token
Recycling, Lookahead) cannot be tried so.
Left out: times (a table T(k) gives those) and temperatures above 0.
"""

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session
from specdec_lib.drafters import Drafter
from specdec_lib.experiments.base import Lab
from specdec_lib.model import CausalLM, ModelOutput, TableModel
from specdec_lib.presets import data_folder
from specdec_lib.tasks import Task
from specdec_lib.trace import Trace
from specdec_lib.zoo import Pair

BEST = 64  # tokens kept of each row
POCKET_TOKENS = 260
SCHEMA = "specdec recording 1"
ARRAYS = ("lengths", "ids", "best", "log_probs")
UNKNOWN = -100.0  # the log-probability of a token that is not among the best


@dataclass(frozen=True)
class Recorded:
    """A prompt and its greedy text. best (tokens, 64) ids and log_probs (tokens, 64): the row that each token of the
    text was emitted from, best first; so best[i, 0] is text[i].
    """

    group: str
    prompt: list[int]
    text: list[int]
    best: np.ndarray
    log_probs: np.ndarray


def record(pair: Pair, tasks: Sequence[Task], max_new_tokens: int, progress: bool = False) -> list[Recorded]:
    """The pair's target on these tasks, in float32, all texts at once; then one pass a text for the rows.

    A text is cut where the two passes differ in the argmax: there two tokens are tied but for rounding.
    """
    target = in_float32(pair).target
    prompts = [pair.prompt(task.prompt) for task in tasks]
    with tqdm(total=2 * len(tasks), desc=f"recording {pair.name}", unit="text", disable=not progress) as bar:

        def begun():
            for prompt in prompts:
                yield prompt
                bar.update()

        texts = []
        traces = decode_batch(target, begun(), max_new_tokens, stops=pair.stops)
        for task, prompt, trace in zip(tasks, prompts, traces, strict=True):
            texts.append(_rows(target, task.group, prompt, trace))
            bar.update()
    return texts


def in_float32(pair: Pair) -> Pair:
    """The pair with its target's weights in float32. ValueError where they are quantised."""
    if getattr(pair.target.model, "is_quantized", False):
        raise ValueError(f"{pair.name}'s target is quantised: its weights cannot be had in float32")
    if pair.target.model.dtype == torch.float32:
        return pair
    return replace(pair, target=CausalLM(copy.deepcopy(pair.target.model).float(), pair.target.vocab_size))


def file_of(pair: str) -> Path:
    """Where a pair's recording is shipped."""
    return data_folder() / "experiments" / f"rows-{pair}.safetensors"


def texts_of(lab: Lab) -> list[Recorded]:
    """The lab's first n texts: of a pocket pair recorded now, of another from its shipped file.

    ValueError where there is no such file, or it holds fewer.
    """
    if lab.pair.name.startswith("pocket"):
        tasks = [Task(problem.question, problem.family, problem) for problem in lab.problems()]
        return record(lab.pair, tasks, POCKET_TOKENS, lab.progress)
    file = file_of(lab.pair.name)
    if not file.is_file():
        raise ValueError(f"no texts of {lab.pair.name} are recorded; record some: specdec record {lab.pair.name}")
    texts, _ = load(file)
    if lab.n > len(texts):
        raise ValueError(f"{file} holds {len(texts)} texts, not {lab.n}; ask for at most so many with --n")
    return texts[: lab.n]


def _rows(target: CausalLM, group: str, prompt: list[int], trace: Trace) -> Recorded:
    ids = [*prompt, *trace.ids]
    target.start()
    target.feed(prompt[:-1])
    chain = torch.tensor(ids[len(prompt) - 1 : -1], device=target.device)
    logits = target.score(chain, range(-1, len(chain) - 1)).logits.float()
    found = torch.log_softmax(logits, dim=-1).topk(min(BEST, logits.shape[-1]), dim=-1)
    best, log_probs = found.indices.cpu().numpy(), found.values.cpu().numpy()
    differ = np.flatnonzero(best[:, 0] != np.array(trace.ids))
    end = int(differ[0]) if len(differ) else len(trace.ids)
    return Recorded(group, prompt, trace.ids[:end], best[:end], log_probs[:end])


# ---- files -----------------------------------------------------------------------------------------------------


def save(file: Path, texts: Sequence[Recorded], origin: dict) -> None:
    """One safetensors file: ids as uint16 where they fit, log-probabilities as float16; groups and origin beside."""
    largest = max(int(max(max(text.prompt), text.best.max())) for text in texts)
    kind = np.uint16 if largest < 2**16 else np.int32
    lengths = np.array([[len(text.prompt), len(text.text)] for text in texts], dtype=np.int32)
    arrays = {
        "lengths": lengths,
        "ids": np.array([token for text in texts for token in (*text.prompt, *text.text)], dtype=kind),
        "best": np.concatenate([text.best for text in texts]).astype(kind),
        "log_probs": np.concatenate([text.log_probs for text in texts]).astype(np.float16),
    }
    about = {"schema": SCHEMA, "groups": json.dumps([text.group for text in texts]), "provenance": json.dumps(origin)}
    save_file(arrays, file, about)


def load(file: Path) -> tuple[list[Recorded], dict]:
    """(texts, provenance). ValueError for a file that is no whole recording."""
    try:
        with safe_open(file, "np") as opened:
            about = opened.metadata() or {}
            arrays = {name: opened.get_tensor(name) for name in ARRAYS}
        if about.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {about.get('schema')!r}, not {SCHEMA!r}")
        texts = list(_unpacked(arrays, json.loads(about["groups"])))
        return texts, json.loads(about["provenance"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{file} is no whole recording ({error}); record it anew") from error


def _unpacked(arrays: dict[str, np.ndarray], groups: list[str]) -> Iterable[Recorded]:
    lengths, ids, best, log_probs = (arrays[name] for name in ARRAYS)
    ids, best = ids.astype(np.int64), best.astype(np.int64)
    if (
        len(groups) != len(lengths)
        or len(ids) != lengths.sum()
        or not len(best) == len(log_probs) == lengths[:, 1].sum()
    ):
        raise ValueError("its numbers do not fit together")
    at = row = 0
    for group, (prompt, text) in zip(groups, lengths.tolist(), strict=True):
        begin, end = at + prompt, at + prompt + text
        found = Recorded(
            group, ids[at:begin].tolist(), ids[begin:end].tolist(), best[row : row + text], log_probs[row : row + text]
        )
        if found.text != found.best[:, 0].tolist():
            raise ValueError("a text is not what its rows say")
        at, row = end, row + text
        yield found


# ---- replay ----------------------------------------------------------------------------------------------------


class Replay(TableModel):
    """A recorded text as a Model for the loop. Ids are renamed 0, 1, ... so that rows stay short; `names` renames.

    Rows along the text are the recorded ones; any other row is flat, and nothing below it is ever accepted.
    known: the recorded id of each new name.
    """

    def __init__(self, recorded: Recorded):
        known = np.unique(np.concatenate([recorded.prompt, recorded.text, recorded.best.ravel()]))
        names = {int(token): new for new, token in enumerate(known)}
        self.prompt, self.text = ([names[token] for token in ids] for ids in (recorded.prompt, recorded.text))
        self._best = torch.from_numpy(np.searchsorted(known, recorded.best))
        self._log_probs = torch.from_numpy(recorded.log_probs.astype(np.float32))
        self._whole = (*self.prompt, *self.text)
        self.known: list[int] = known.tolist()
        super().__init__(lambda ids: (), len(known))

    def score(self, tokens: torch.Tensor, parents: Sequence[int], needs: frozenset[str] = frozenset()) -> ModelOutput:
        self._append(tokens, parents, self.context)
        self.pending_tokens += tokens.tolist()
        first = len(self.pending) - len(tokens)
        logits = torch.full((len(tokens), self.vocab_size), UNKNOWN)
        on_text: dict[int, int] = {-1: len(self.ids)}  # node: how many ids of the text its row follows
        for node in range(len(self.pending)):
            at = on_text.get(self.pending[node])
            if at is not None and at < len(self._whole) and self.pending_tokens[node] == self._whole[at]:
                on_text[node] = at + 1
                row = at + 1 - len(self.prompt)
                if node >= first and 0 <= row < len(self.text):
                    logits[node - first, self._best[row]] = self._log_probs[row]
        return ModelOutput(logits)


def replay(drafter: Drafter, recorded: Recorded) -> Trace:
    """The drafter on a recorded text, through the loop. RuntimeError if another text comes out."""
    model = Replay(recorded)
    trace = Session(model, drafter).start(model.prompt).run(len(model.text))
    if trace.ids != model.text:
        raise RuntimeError("the replayed text is not the recorded one")
    return trace

"""Hidden states of labelled answers: what the loop hands the judge, and the same after other layers.

Follows Judge Decoding (arXiv 2501.19309): the state at the token's own position, before the final norm.
Left out: rolling caches; each text is read once, as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm

from specdec_lib.judge.labels import LabelledAnswer
from specdec_lib.model import final_norm, input_of
from specdec_lib.zoo import Pair

BATCH_TOKENS = 2048  # padded tokens of one pass


@dataclass
class Features:
    """A row an answer token. hidden: layer -> (tokens, width) float32, on the CPU.

    marks: one a token. answer: (tokens,) which answer. ids: (tokens,). log_probs: (tokens,) the target's own
    log-probability of the token, from the row before.
    """

    hidden: dict[int, torch.Tensor]
    marks: str
    answer: torch.Tensor
    ids: torch.Tensor
    log_probs: torch.Tensor

    def rows(self, chosen: torch.Tensor) -> "Features":
        """Only these tokens; chosen: (tokens,) bool."""
        marks = "".join(m for m, c in zip(self.marks, chosen.tolist(), strict=True) if c)
        hidden = {layer: rows[chosen] for layer, rows in self.hidden.items()}
        return Features(hidden, marks, self.answer[chosen], self.ids[chosen], self.log_probs[chosen])


def last_layer(pair: Pair) -> int:
    """The layer whose output goes into the final norm: what the loop reads."""
    return pair.target.model.config.get_text_config().num_hidden_layers


@torch.inference_mode()
def features(
    pair: Pair, answers: Sequence[LabelledAnswer], layers: Sequence[int] = (), progress: bool = False
) -> Features:
    """Hidden states of every answer token at its own row, after these layers (default: the last alone).

    ValueError for a text that does not fit the target's context.
    """
    last = last_layer(pair)
    layers = list(layers) or [last]
    texts = [(pair.prompt(a.prompt), a) for a in answers]
    rows: dict[int, list] = {}
    with tqdm(total=len(texts), desc="hidden states", unit="answer", disable=not progress) as bar:
        for batch in _batches(texts):
            found = _pass(pair, [[*texts[i][0], *texts[i][1].ids] for i in batch], layers, last)
            for i, (states, log_probs) in zip(batch, found, strict=True):
                start = len(texts[i][0])
                rows[i] = [{layer: s[start:] for layer, s in states.items()}, log_probs[start:]]
            bar.update(len(batch))
    in_order = [rows[i] for i in range(len(texts))]
    return Features(
        {layer: torch.cat([states[layer] for states, _ in in_order]) for layer in layers},
        "".join(a.marks for a in answers),
        torch.repeat_interleave(torch.arange(len(answers)), torch.tensor([len(a.ids) for a in answers])),
        torch.tensor([token for a in answers for token in a.ids]),
        torch.cat([log_probs for _, log_probs in in_order]),
    )


def _batches(texts: list) -> list[list[int]]:
    """Indices of texts of like length, so that little is padded."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i][0]) + len(texts[i][1].ids))
    batches: list[list[int]] = []
    for i in order:
        size = len(texts[i][0]) + len(texts[i][1].ids)
        if not batches or size * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(i)
    return batches


def _pass(pair: Pair, ids: list[list[int]], layers: list[int], last: int) -> list[tuple[dict, torch.Tensor]]:
    """Per text: {layer: (length, width)}, and the log-probability of each token, (length,), 0 for the first."""
    model, device = pair.target.model, pair.target.device
    longest = max(map(len, ids))
    if longest > pair.target.context:
        raise ValueError(f"a text of {longest} tokens does not fit the target's context of {pair.target.context}")
    padded = torch.zeros(len(ids), longest, dtype=torch.long)
    for row, text in zip(padded, ids, strict=True):
        row[: len(text)] = torch.tensor(text)
    padded = padded.to(device)
    # Padding stands behind a text, where a causal model does not look: no mask is needed.
    with input_of(final_norm(model)) as before_norm:
        output = model(input_ids=padded, use_cache=False, output_hidden_states=layers != [last])
    states = {layer: before_norm[0] if layer == last else output.hidden_states[layer] for layer in layers}
    logits = output.logits[:, :-1, : pair.target.vocab_size].float()
    log_probs = torch.zeros(padded.shape)
    drawn = logits.gather(2, padded[:, 1:, None]).squeeze(2) - logits.logsumexp(dim=2)
    log_probs[:, 1:] = drawn.cpu()
    return [
        ({layer: s[i, : len(text)].float().cpu() for layer, s in states.items()}, log_probs[i, : len(text)])
        for i, text in enumerate(ids)
    ]

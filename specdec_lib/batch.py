"""Many prompts decoded together, each to the very tokens, verdicts and laws that the loop gives it alone.

Our own. Read after decode.py and rows.py. Every text is a Session, so rounds, rules and chance are the loop's own; what
is shared is the models' passes, one a step for all texts. A text that ends makes room for the next prompt.
Left out: speed (a round's seconds stay 0: they would be the batch's), trees, and drafters other than a draft model.
"""

from collections.abc import Iterable, Sequence

import torch

from specdec_lib.decode import Session, Stops, check_budget
from specdec_lib.drafters import Drafter, ModelDrafter, NoDrafter
from specdec_lib.model import CausalLM, ModelOutput
from specdec_lib.rows import RowsModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.trace import Trace
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Verifier
from specdec_lib.verifiers.base import DRAFT_HIDDEN, DRAFT_ROWS, HIDDEN
from specdec_lib.whole import check_whole

SIZE = 32


def decode_batch(
    target: CausalLM,
    prompts: Iterable[Sequence[int]],
    max_new_tokens: int,
    drafter: Drafter | None = None,
    verifier: Verifier | None = None,
    settings: SamplingSettings | None = None,
    stops: Stops | None = None,
    seed: int = 0,
    size: int = SIZE,
) -> list[Trace]:
    """The prompts' traces, in their order: trace i is decode(target, prompt i, ..., seed=seed + i), less its seconds.

    size: texts at once. It changes no token, but for rounding: a pass over many rows may round its logits another way
    than a pass over one, which shows where two tokens are all but tied, and in half precision.
    A rule or a drafter with `learns = True` is given one text at a time, since what it says of a text depends on all
    texts before; frozen, it can go in a batch. A memory that the run only fills and does not read can be taught from
    the traces: they are in the order of the prompts.
    Raises ValueError for a drafter that is neither a ModelDrafter of chains nor NoDrafter, for a target that is not a
    CausalLM with a mask of our own (rows.py), and for what decode refuses.
    """
    check_whole("size, the number of texts at once,", size, 1)
    check_budget(max_new_tokens)
    if getattr(verifier, "learns", False) or getattr(drafter, "learns", False):
        size = 1
    batch = _Batch(target, drafter, size)
    for number, prompt in enumerate(prompts):
        batch.add(_Text(number, target, prompt, max_new_tokens, verifier, settings, stops, seed))
        while len(batch.texts) == size:
            batch.round()
    while batch.texts:
        batch.round()
    return [batch.traces[number] for number in sorted(batch.traces)]


class _Batch:
    """The texts being decoded. Text i is row i of both models' caches."""

    def __init__(self, target: CausalLM, drafter: Drafter | None, size: int):
        self.target = RowsModel(target, size)
        self.chains = _Chains(drafter, size) if _drafts(drafter) else None
        self.models = [self.target] + ([self.chains.draft] if self.chains else [])
        self.texts: list[_Text] = []
        self.traces: dict[int, Trace] = {}

    def add(self, text: "_Text") -> None:
        self.texts.append(text)
        for model in self.models:
            model.add()
        if len(text.ids) > 1:
            self.target.read([len(self.texts) - 1], [torch.tensor(text.ids[:-1], device=text.device)], last=True)
        self._part()

    def round(self) -> None:
        """One round of every text: as many passes of the draft as the longest chain takes, one of the target."""
        trees = self.chains.propose(self.texts) if self.chains else [text.root() for text in self.texts]
        scored = [text.session.with_scouts(tree) for text, tree in zip(self.texts, trees, strict=True)]
        if not all(tree.is_chain for tree in scored):
            raise ValueError("a batch scores chains; decode the texts of a rule whose scouts branch one by one")
        output = self.target.read(
            range(len(scored)), [tree.tokens for tree in scored], self.texts[0].session.verifier.needs & {HIDDEN}
        )
        for i, (text, tree) in enumerate(zip(self.texts, trees, strict=True)):
            nodes = len(scored[i])
            hidden = None if output.hidden is None else output.hidden[i, :nodes]
            text.round(tree, ModelOutput(output.logits[i, :nodes], hidden))
            for model in self.models:  # what is read and committed; the newest token never is read
                model.lengths[i] = min(model.lengths[i], len(text.ids) - 1)
        self._part()

    def _part(self) -> None:
        """Texts that have ended leave; the last text takes the row of one that leaves."""
        for i in reversed(range(len(self.texts))):
            if self.texts[i].left <= 0:
                text, self.texts[i] = self.texts[i], self.texts[-1]
                self.texts.pop()
                self.traces[text.number] = text.end()
                for model in self.models:
                    model.drop(i)


class _Text:
    """One prompt's Session, whose drafter and target hand over what was computed for all texts."""

    def __init__(
        self, number: int, target: CausalLM, prompt, max_new_tokens: int, verifier, settings, stops, seed: int
    ):
        self.number, self.device = number, target.device
        self.proposal, self.scored = _Proposal(), _Scored(target)
        self.session = Session(self.scored, self.proposal, verifier, settings, stops, seed=seed + number)
        try:
            self.session.start(prompt)
        except ValueError as error:
            raise ValueError(f"prompt {number} of the batch: {error}") from error
        self.session.trace.prefill_s = 0.0
        self.end_at = len(self.ids) + max_new_tokens
        eos = sorted(self.session.stops.eos_token_ids)
        self.adjuster = self.session.settings.adjuster(len(self.ids), eos, self.device)
        self.rounds = self.session.rounds(max_new_tokens, self.adjuster)

    @property
    def ids(self) -> list[int]:
        return self.session.ids

    @property
    def left(self) -> int:
        """How many ids the next round may emit."""
        return 0 if self.session.trace.reason else min(self.end_at, self.scored.context) - len(self.ids)

    def root(self) -> DraftTree:
        return DraftTree.chain(self.ids[-1:], device=self.device)

    def round(self, tree: DraftTree, output: ModelOutput) -> None:
        """The session's next round, on this proposal and these scores."""
        self.proposal.tree, self.scored.output = tree, output
        record = next(self.rounds)
        record.draft_s = record.score_s = record.verify_s = record.other_s = 0.0

    def end(self) -> Trace:
        for _ in self.rounds:  # nothing is left: the session only says why
            raise RuntimeError("a text of the batch went on beyond its end")
        return self.session.trace


class _Proposal:
    """A Drafter that proposes what it was handed."""

    name = "batch"
    tree: DraftTree

    def start(self, prompt: list[int]) -> None:
        pass

    def propose(self, context) -> DraftTree:
        return self.tree

    def observe(self, feedback) -> None:
        pass


class _Scored:
    """A Model whose scores it was handed; it only counts what its row holds."""

    output: ModelOutput

    def __init__(self, target: CausalLM):
        self.vocab_size, self.context, self.device = target.vocab_size, target.context, target.device

    def start(self) -> None:
        self.length = 0

    def feed(self, tokens: Sequence[int]) -> None:
        self.length += len(tokens)

    def score(self, tokens: torch.Tensor, parents: Sequence[int], needs: frozenset[str] = frozenset()) -> ModelOutput:
        return self.output

    def keep(self, path: Sequence[int]) -> None:
        self.length += len(path)

    def truncate(self, length: int) -> None:
        self.length = length


def _drafts(drafter: Drafter | None) -> bool:
    """Is there a draft model? ValueError for what cannot be drafted in a batch."""
    if drafter is None or type(drafter) is NoDrafter:
        return False
    if type(drafter) is not ModelDrafter or drafter.siblings:
        raise ValueError(
            f"a batch drafts chains with a draft model, or nothing; decode the texts of the drafter {drafter.name!r}"
            f"{' with siblings' if type(drafter) is ModelDrafter else ''} one by one"
        )
    return True


class _Chains:
    """What a ModelDrafter proposes for every text: a token of each chain a pass, drawn with the text's own chance."""

    def __init__(self, drafter: ModelDrafter, size: int):
        self.drafter, self.draft = drafter, RowsModel(drafter.model, size)

    def propose(self, texts: Sequence[_Text]) -> list[DraftTree]:
        """The texts' chains. As in drafters/model.py, a chain ends early where the text or the draft's context does."""
        model, point_mass = self.drafter.model, self.drafter.greedy or texts[0].adjuster.greedy
        gammas = [min(self.drafter.gamma, text.left - 1, model.context - len(text.ids) + 1) for text in texts]
        tokens = [[torch.tensor(text.ids[-1:], device=model.device)] for text in texts]
        needs = texts[0].session.verifier.needs
        hidden_needed = frozenset({HIDDEN} if DRAFT_HIDDEN in needs else ())
        laws, peaks, draft_rows, draft_hidden = ([[] for _ in texts] for _ in range(4))
        active = [i for i, gamma in enumerate(gammas) if gamma > 0]
        new = [self._unread(i, texts[i].ids) for i in active]
        for depth in range(1, max(gammas) + 1):
            output = self.draft.read(active, new, hidden_needed, last=True)
            adjusted = self._adjusted(output.logits[:, 0], active, texts, tokens)
            if point_mass:
                found, drawn = adjusted.max(dim=-1)
            else:
                found = texts[0].adjuster.laws(adjusted)
                rows = found.split(1)
                drawn = torch.cat([texts[i].session.chance.draw(row) for i, row in zip(active, rows, strict=True)])
            for i, token, row in zip(active, drawn.split(1), found.split(1), strict=True):
                tokens[i].append(token)
                (peaks if point_mass else laws)[i].append(row)
            for at, i in enumerate(active):
                if DRAFT_ROWS in needs:
                    draft_rows[i].append(adjusted[at : at + 1])
                if hidden_needed:
                    draft_hidden[i].append(output.hidden[at, len(new[at]) - 1 :][:1])
            active = [i for i in active if gammas[i] > depth]
            new = [tokens[i][-1] for i in active]
        device = texts[0].device

        def joined(found: list[torch.Tensor]) -> torch.Tensor | None:
            return torch.cat(found).to(device) if found else None

        return [
            DraftTree(
                torch.cat(tokens[i]).to(device),
                range(-1, len(tokens[i]) - 1),
                joined(laws[i]),
                draft_peaks=joined(peaks[i]),
                draft_rows=joined(draft_rows[i]),
                draft_hidden=joined(draft_hidden[i]),
            )
            for i in range(len(texts))
        ]

    def _unread(self, row: int, ids: list[int]) -> torch.Tensor:
        """The committed tokens that the draft has yet to read, a prompt's last one at most; the prompt is read here."""
        known = self.drafter.model.vocab_size - 1
        missing = [min(token, known) for token in ids[self.draft.lengths[row] :]]
        missing = torch.tensor(missing, device=self.drafter.model.device)
        if len(missing) > 2:
            self.draft.read([row], [missing[:-1]], last=True)
            missing = missing[-1:]
        return missing

    def _adjusted(self, logits: torch.Tensor, active: list[int], texts: Sequence[_Text], tokens) -> torch.Tensor:
        """The draft's logits over the target's vocabulary, processed with each text's own prefix."""
        beyond = texts[0].scored.vocab_size - logits.shape[-1]  # below 0, rows are cut
        logits = torch.nn.functional.pad(logits, (0, beyond), value=-float("inf"))
        if not texts[0].adjuster.needs_prefix:
            return texts[0].adjuster.logits(logits, None)
        rows = []
        for i, row in zip(active, logits.split(1), strict=True):
            prefix = [*texts[i].ids[:-1], *torch.cat(tokens[i]).tolist()]
            rows.append(texts[i].adjuster.logits(row, lambda _, prefix=prefix: prefix))
        return torch.cat(rows)

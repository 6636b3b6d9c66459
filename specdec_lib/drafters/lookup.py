"""Prompt lookup: what followed the last few tokens where they stood before, proposed as a chain.

Follows Saxena 2023 (prompt lookup decoding) and, for the second convention, transformers' prompt_lookup_num_tokens.
Left out: the original code's demand that all gamma tokens of a continuation are there; what is there is proposed, which
emits a little more (specdec experiment retrieval has both).
"""

from collections.abc import Iterable, Sequence

from specdec_lib.drafters.base import DraftContext, Feedback, check_draft_length
from specdec_lib.ngrams import NGramIndex
from specdec_lib.tree import DraftTree
from specdec_lib.whole import check_whole

ORIGINAL, HUGGING_FACE = "original", "hf"
LONGEST = {ORIGINAL: 3, HUGGING_FACE: 2}  # tokens of a key, unless said otherwise


class PromptLookup:
    """Up to gamma tokens that followed the leftmost earlier occurrence of the last `longest`, ..., 2, 1 tokens.

    The text is prompt and output, the newest token included. Tie rule: of several occurrences the leftmost counts.
    convention: what an earlier occurrence is. "original": its continuation begins before the key at the end does, so
    that not a token of the key proposes itself; where the leftmost fails that, a shorter key is tried. "hf": anything
    follows it, so it may overlap the end. Both are cut before an EOS token; nothing found, nothing is proposed.
    Every committed token costs `longest` entries of a dictionary, a look-up as many reads at most, however long the
    text is. Each text begins with an empty index. ValueError for an unknown convention and numbers out of range.
    """

    name = "pld"

    def __init__(
        self,
        gamma: int = 10,
        longest: int | None = None,
        convention: str = ORIGINAL,
        eos_token_ids: Iterable[int] = (),
    ):
        if convention not in LONGEST:
            raise ValueError(f"unknown convention {convention!r}; choose one of {', '.join(LONGEST)}")
        self.gamma, self.convention = check_draft_length(gamma), convention
        longest = LONGEST[convention] if longest is None else longest
        self.index = NGramIndex(check_whole("ngram, the longest key,", longest, 1), full=None)
        self.eos_token_ids = frozenset(eos_token_ids)

    def start(self, prompt: list[int]) -> None:
        self.index.clear()
        self.index.sync(prompt)

    def propose(self, context: DraftContext) -> DraftTree:
        self.index.sync(context.committed)
        at = self._position()
        found = [] if at is None else self.index.ids[at : at + min(self.gamma, context.room)]
        found = sound(found, context.vocab_size, self.eos_token_ids)
        return DraftTree.chain([context.committed[-1], *found], device=context.device)

    def observe(self, feedback: Feedback) -> None:
        pass

    def _position(self) -> int | None:
        """Where the continuation begins in the text, or None."""
        ids, longest = self.index.ids, self.index.longest
        while longest and (found := self.index.find(ids[-longest:])):
            at, length = found
            if self.convention == HUGGING_FACE or at < len(ids) - length:
                return at
            longest = length - 1
        return None


def sound(tokens: Sequence[int], vocab_size: int, eos_token_ids: frozenset[int] = frozenset()) -> list[int]:
    """The tokens before the first one that is EOS or outside the vocabulary."""
    end = next((i for i, token in enumerate(tokens) if token >= vocab_size or token in eos_token_ids), len(tokens))
    return list(tokens[:end])

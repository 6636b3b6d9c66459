"""The one loop: propose, score, verify, keep. Every method of the course goes through it.

Follows Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, with trees (SpecInfer, arXiv 2305.09781).
Left out: batches (one text at a time), loading models (zoo.py), and the rules themselves (verifiers/).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from specdec_lib.drafters.base import DraftContext, Drafter, Feedback, NoDrafter
from specdec_lib.model import Model
from specdec_lib.sampling import Adjuster, Chance, RandomChance, SamplingSettings
from specdec_lib.trace import Round, Trace
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import HIDDEN, Scores, Verdict, Verifier
from specdec_lib.verifiers.lossless import LosslessRejection
from specdec_lib.whole import check_whole

EOS, STOP, LENGTH, CONTEXT = "eos", "stop", "length", "context"  # why a text ended


@dataclass
class Stops:
    """When a text ends: any of several EOS ids, or stop strings (which may span tokens; need a tokenizer)."""

    eos_token_ids: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    tokenizer: object = None

    def __post_init__(self) -> None:
        if self.strings and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer to be seen in the text")
        if any(not s for s in self.strings):
            raise ValueError("a stop string is empty; leave it out")

    def first(self, ids: Sequence[int], start: int, emitted: Sequence[int]) -> tuple[int, str] | None:
        """(how many of the emitted ids to keep, reason) at the earliest stop, or None.

        ids: the text before this round; its new part, where stop strings count, begins at `start`.
        """
        tail = []
        if self.strings:  # a token may carry no text of its own, so a few more than characters
            tail = list(ids[max(start, len(ids) - max(map(len, self.strings)) - 8) :])
        for i, token in enumerate(emitted):
            if token in self.eos_token_ids:
                return i + 1, EOS
            tail.append(token)
            if self.strings and self._completes_string(tail):
                return i + 1, STOP
        return None

    def _completes_string(self, ids: list[int]) -> bool:
        """Does the newest id complete a stop string?"""
        text, earlier = self.tokenizer.decode(ids), self.tokenizer.decode(ids[:-1])
        return any(text.count(s) > earlier.count(s) for s in self.strings)


class Session:
    """One text being decoded: it can be streamed, stopped early, stopped by an error, and gone on with.

    Between rounds, target.length == len(ids) - 1: the newest token, the root of the next tree, is not yet cached.
    generator: drives every draw; by default one seeded with `seed` on the target's device. The global random state
    is never touched. Raises ValueError for an empty prompt, a batch, or a prompt beyond the target's context.
    """

    def __init__(
        self,
        target: Model,
        drafter: Drafter | None = None,
        verifier: Verifier | None = None,
        settings: SamplingSettings | None = None,
        stops: Stops | None = None,
        chance: Chance | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ):
        self.target = target
        self.drafter = NoDrafter() if drafter is None else drafter
        self.verifier = LosslessRejection() if verifier is None else verifier
        self.settings = SamplingSettings() if settings is None else settings
        self.stops = Stops() if stops is None else stops
        self.generator = None if chance is not None else generator
        if chance is None:
            self.generator = self.generator or torch.Generator(device=target.device).manual_seed(seed)
            chance = RandomChance(self.generator)
        self.chance = chance
        if getattr(self.drafter, "model", None) is target:
            raise ValueError("target and draft are one object with one cache; wrap the same weights twice instead")
        self.ids: list[int] = []

    def start(self, prompt: Sequence[int]) -> "Session":
        """Begin a new text after a prompt of token ids."""
        prompt = check_prompt(prompt, self.target)
        self.prompt, self.ids = prompt, list(prompt)
        self.trace = self._new_trace()
        began = time.perf_counter()
        self.target.start()
        self.drafter.start(prompt)
        self.target.feed(prompt[:-1])
        if memory := getattr(self.drafter, "memory", None):  # what earlier texts, or a file, left a drafter
            self.trace.settings["memory"] = memory
        self.trace.prefill_s = time.perf_counter() - began
        return self

    def extend(self, ids: Sequence[int]) -> None:
        """Add tokens of the user's to a text that has stopped; a new trace begins."""
        if not len(ids):
            return
        extended = check_prompt([*self.ids, *ids], self.target)
        self.target.truncate(min(self.target.length, len(self.ids) - 1))
        self.target.feed(extended[self.target.length : -1])
        self.ids = extended
        self.trace = self._new_trace()

    def _new_trace(self) -> Trace:
        chosen = {name: value for name, value in asdict(self.settings).items() if value or name == "temperature"}
        if "bad_words_ids" in chosen:  # as JSON gives them back
            chosen["bad_words_ids"] = [list(words) for words in self.settings.bad_words_ids]
        learning = any(getattr(part, "learns", False) for part in (self.verifier, self.drafter))
        return Trace(list(self.ids), self.verifier.name, self.verifier.lossless, chosen, learning=learning)

    def rounds(self, max_new_tokens: int, adjuster: Adjuster | None = None) -> Iterator[Round]:
        """Decode, giving each round when it is committed. trace.reason says why it ended.

        Stopping the iteration, or an exception in a round, leaves the session at the last whole round.
        """
        check_budget(max_new_tokens)
        start, self.trace.reason = len(self.ids), ""
        if adjuster is None:
            adjuster = self.settings.adjuster(start, sorted(self.stops.eos_token_ids), self.target.device)
        while not self.trace.reason:
            left = max_new_tokens - (len(self.ids) - start)
            room = self.target.context - len(self.ids)
            if left <= 0 or room <= 0:
                self.trace.reason = LENGTH if left <= 0 else CONTEXT
                return
            yield self._round(adjuster, start, min(left, room))

    def run(self, max_new_tokens: int) -> Trace:
        """Decode to the end; the trace."""
        for _ in self.rounds(max_new_tokens):
            pass
        return self.trace

    def _round(self, adjuster: Adjuster, start: int, limit: int) -> Round:
        """One round, emitting at most `limit` ids. On any exception the state before it is restored, chance too."""
        before, rounds = len(self.ids), len(self.trace.rounds)
        if self.target.length != before - 1:
            raise RuntimeError(
                f"the target holds {self.target.length} tokens where this text has {before - 1}: another session has "
                "used the same model since; finish one text before the next, or load the model twice"
            )
        random_state = self.generator.get_state() if self.generator is not None else None
        clock = _Clock(self.target.device)
        try:
            context = DraftContext(
                self.ids, limit - 1, self.target.vocab_size, adjuster, self.chance, self.target.device,
                self.verifier.needs,
            )  # fmt: skip
            tree = self.drafter.propose(context)
            if tree.depth > limit - 1:
                raise ValueError(f"{self.drafter.name} proposed {tree.depth} tokens deep where {limit - 1} fit")
            tree = self.with_scouts(tree)
            clock.lap("draft_s")
            output = self.target.score(tree.tokens, tree.parents, self.verifier.needs & {HIDDEN})
            clock.lap("score_s")
            scores = Scores(output.logits, adjuster, self._prefix(tree), output.hidden)
            verdict = self.verifier.verify(tree, scores, self.chance)
            clock.lap("verify_s")
            emitted, path, last, reason = self._cut(verdict, start, limit)
            committed_nodes = verdict.path[: len(emitted) - 1]
            self.target.keep([0, *committed_nodes])
            self.ids.extend(emitted)
            clock.lap("other_s")
            feedback = Feedback(tree, scores, verdict, committed_nodes, self.ids)
            self.drafter.observe(feedback)
            clock.lap("draft_s")
            record = Round(
                verdict.tokens, tree.parents, verdict.target_probs, verdict.draft_probs, verdict.overlaps,
                path, verdict.outcomes, emitted, last, **clock.seconds(), scouts=sorted(tree.scouts),
                best=verdict.best, added=verdict.added,
            )  # fmt: skip
            self.trace.rounds.append(record)
            self.trace.reason = reason
        except BaseException:
            del self.ids[before:], self.trace.rounds[rounds:]
            self.target.truncate(min(self.target.length, before - 1))
            if random_state is not None:
                self.generator.set_state(random_state)
            raise
        learn = getattr(self.verifier, "learn", None)
        if learn is not None:  # only from what is committed: never from an interrupted round
            began = time.perf_counter()
            learn(feedback)
            record.verify_s += time.perf_counter() - began
        return record

    def _cut(self, verdict: Verdict, start: int, limit: int) -> tuple[list[int], list[int], str, str]:
        """What of a verdict is emitted: ids, kept nodes, the kind of the last id, and the reason to stop if any."""
        emitted = [*(verdict.tokens[node] for node in verdict.path), verdict.token][:limit]
        stop = self.stops.first(self.ids, start, emitted)
        reason = ""
        if stop is not None:
            emitted, reason = emitted[: stop[0]], stop[1]
        path = verdict.path[: len(emitted)]
        last = verdict.kind if len(emitted) > len(verdict.path) else "accepted"
        return emitted, path, last, reason

    def with_scouts(self, tree: DraftTree) -> DraftTree:
        """A proposal with the scouts that the verifier wants beside it."""
        add = getattr(self.verifier, "with_scouts", None)
        return tree if add is None else add(tree, self.target.context - len(self.ids))

    def _prefix(self, tree: DraftTree):
        length, tokens = len(self.ids), []  # the text as it is before the verdict, whenever a row is asked for

        def prefix(node: int) -> list[int]:
            if not tokens:
                tokens.extend(tree.tokens.tolist())
            return [*self.ids[:length], *(tokens[n] for n in tree.path_to(node))]

        return prefix


def decode(
    target: Model,
    prompt: Sequence[int],
    max_new_tokens: int,
    drafter: Drafter | None = None,
    verifier: Verifier | None = None,
    settings: SamplingSettings | None = None,
    stops: Stops | None = None,
    seed: int = 0,
) -> Trace:
    """Decode one prompt to the end and return its trace (trace.ids are the new tokens). See Session."""
    session = Session(target, drafter, verifier, settings, stops, seed=seed)
    return session.start(prompt).run(max_new_tokens)


def check_budget(max_new_tokens: object) -> None:
    """ValueError unless max_new_tokens is a whole number, 0 or more (True and 2.5 are refused)."""
    check_whole("max_new_tokens", max_new_tokens, 0)


def check_prompt(prompt: Sequence[int], target: Model) -> list[int]:
    """The prompt as a list of ids, or a ValueError that says what is wrong with it."""
    if torch.is_tensor(prompt):
        if prompt.dim() == 2 and prompt.shape[0] == 1:
            prompt = prompt[0]
        if prompt.dim() != 1:
            raise ValueError(f"one text at a time: got ids of shape {tuple(prompt.shape)}; decode the rows one by one")
        prompt = prompt.tolist()
    prompt = list(prompt)
    if any(not isinstance(token, int) or isinstance(token, bool) for token in prompt):
        raise ValueError("a prompt is a flat list of token ids; decode several prompts one by one")
    if not prompt:
        raise ValueError("the prompt is empty; give at least one token (the BOS token starts a text from nothing)")
    outside = [token for token in prompt if not 0 <= token < target.vocab_size]
    if outside:
        raise ValueError(f"prompt token {outside[0]} is not in the target's vocabulary of {target.vocab_size}")
    if len(prompt) > target.context:
        raise ValueError(f"the prompt has {len(prompt)} tokens; the target's context holds {target.context}")
    return prompt


class _Clock:
    """Seconds by phase. On a GPU the laps are events, read after the round's own synchronisation."""

    def __init__(self, device: torch.device):
        self.cuda = device.type == "cuda"
        self.laps: list[tuple[str, object]] = [("", self._now())]

    def _now(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self, phase: str) -> None:
        self.laps.append((phase, self._now()))

    def seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if self.cuda:
            self.laps[-1][1].synchronize()
        for (_, begin), (phase, end) in zip(self.laps, self.laps[1:], strict=False):
            spent = begin.elapsed_time(end) / 1000 if self.cuda else end - begin
            found[phase] = found.get(phase, 0.0) + spent
        return found

"""Buying nodes: a tree of point masses grows as long as a node brings more tokens a second than the tree without it.

Our own. T(k), the measured time of a round over k nodes, is the price list; odds of acceptance are counted as the text
goes on. Sequoia (arXiv 2402.12374) sizes trees by hardware too, from acceptance rates by rank that are fixed.
Left out: drawn tokens. Leaving one out for what it turned out to be would bend the law, so such trees are refused.

A node is kept with the product of the odds down to it. The nodes with the largest products make the best tree of their
number, and of these trees the one with the most expected tokens a second is taken. The drafts of a round depend on
earlier rounds alone, so the text stays exact.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specdec_lib.drafters.base import DraftContext, Drafter, Feedback
from specdec_lib.theory import pass_time
from specdec_lib.tree import DraftTree

Offer = tuple[int, Hashable]  # a token that may follow, and the key under which its odds are counted
STRENGTH = 20.0


class Odds:
    """Chance that a token is accepted once its parent is, by key: (strength prior + accepted) / (strength + tested).

    prior: the chance of a key of which nothing was counted. strength: how many tests it is worth.
    """

    def __init__(self, prior: Callable[[Hashable], float], strength: float = STRENGTH):
        self.prior, self.strength = prior, strength
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self.counts: dict[Hashable, list[int]] = {}  # key: [accepted, tested]

    def count(self, key: Hashable, accepted: bool) -> None:
        counts = self.counts.setdefault(key, [0, 0])
        counts[0] += accepted
        counts[1] += 1

    def chance(self, key: Hashable) -> float:
        accepted, tested = self.counts.get(key, (0, 0))
        return (self.strength * self.prior(key) + accepted) / (self.strength + tested)


class PriceList:
    """T(k) for every k up to the largest measured, from times {k: seconds}. ValueError without T(1), or for times of 0.

    A larger tree never costs less: a time below that of a smaller tree is a disturbance, and is raised to it.
    """

    def __init__(self, times: Mapping[int, float]):
        if 1 not in times or min(times.values()) <= 0:
            raise ValueError(f"a price list needs T(1), and times above 0; got {dict(times)}")
        self.seconds = [0.0]
        for k in range(1, max(times) + 1):
            self.seconds.append(max(self.seconds[-1], pass_time(times, k)))
        # The least that a node more costs, from a tree of so many nodes on: to a size that is cheap to reach.
        sizes = range(len(self.seconds))
        self.least = [min((self._mean_step(size, k) for k in sizes[size + 1 :]), default=math.inf) for size in sizes]

    def _mean_step(self, size: int, larger: int) -> float:
        return (self.seconds[larger] - self.seconds[size]) / (larger - size)

    @property
    def most(self) -> int:
        """The largest tree that has a price."""
        return len(self.seconds) - 1


@dataclass
class Basket:
    """A tree bought: tokens and parents, root first, and what was offered below each of its nodes."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    offers: list[list[Offer]] = field(default_factory=list)


def buy(root: int, offers: Callable[[list[int]], Iterable[Offer]], odds: Odds, prices: PriceList, room: int) -> Basket:
    """The tree worth scoring, no deeper than room. offers(path): what may follow these tokens below the root.

    Of equal tokens below one node the first offer counts.
    """
    basket, chances, paths, waiting, order = Basket([root]), [1.0], [[]], [], itertools.count()
    tokens, best_rate, best_size = 1.0, 1 / prices.seconds[1], 1
    for size in range(1, prices.most + 1):
        node, offered = size - 1, {}
        if len(paths[node]) < room:
            for token, key in offers(paths[node]):
                offered.setdefault(token, key)
        basket.offers.append(list(offered.items()))
        for token, key in offered.items():
            heapq.heappush(waiting, (-chances[node] * odds.chance(key), next(order), node, token))
        if tokens / prices.seconds[size] > best_rate:
            best_rate, best_size = tokens / prices.seconds[size], size
        # Whatever may still come is at most as likely as the next one, and costs at least `least` a node.
        if not waiting or size == prices.most or -waiting[0][0] <= best_rate * prices.least[size]:
            break
        negative, _, parent, token = heapq.heappop(waiting)
        basket.tokens.append(token)
        basket.parents.append(parent)
        chances.append(-negative)
        paths.append([*paths[parent], token])
        tokens -= negative
    return Basket(basket.tokens[:best_size], basket.parents[:best_size], basket.offers[:best_size])


def learn(basket: Basket, odds: Odds, emitted: Sequence[int]) -> None:
    """Count every offer at the nodes reached, bought or not: the text itself says which token was right."""
    node: int | None = 0
    for token in emitted:
        for offered, key in basket.offers[node]:
            odds.count(key, offered == token)
        below = (n for n in range(node + 1, len(basket.tokens)) if basket.parents[n] == node)
        node = next((n for n in below if basket.tokens[n] == token), None)
        if node is None:
            return


class Buyer:
    """A drafter that buys its tree. A subclass says what is on offer; see buy.

    times: T(k) of the target, {k: seconds} (pricing.py measures it); given, so that the same seed gives the same text.
    keep: go on with the counts of earlier texts. Nothing else persists, and `memory` says so.
    """

    name = "buyer"

    def __init__(self, times: Mapping[int, float], odds: Odds, keep: bool = False):
        self.times = dict(times)
        self.prices, self.odds, self.keep = PriceList(times), odds, bool(keep)
        self.learns, self.memory = self.keep, None

    def offers(self, path: list[int]) -> Iterable[Offer]:
        raise NotImplementedError

    def start(self, prompt: list[int]) -> None:
        if not self.keep:
            self.odds.clear()
        kinds = len(self.odds.counts)
        self.memory = f"odds of {kinds} kinds of nodes, counted in earlier texts" if kinds else None

    def propose(self, context: DraftContext) -> DraftTree:
        self.basket = buy(context.committed[-1], self.offers, self.odds, self.prices, context.room)
        tokens = torch.tensor(self.basket.tokens, dtype=torch.long, device=context.device)
        return DraftTree(tokens, self.basket.parents)

    def observe(self, feedback: Feedback) -> None:
        learn(self.basket, self.odds, feedback.committed[-len(feedback.kept) - 1 :])


def prior_by_rank(key: tuple[int, int]) -> float:
    """Before anything is counted, by (depth, rank among siblings): a retrieved chain goes on as it began."""
    depth, rank = key
    return 0.08 / rank if rank else 0.3 if depth == 1 else 0.6


class CostAware(Buyer):
    """Any drafter of point masses, with its trees cut to what is worth scoring. Odds go by depth and rank of a sibling.

    What the inner drafter goes on with from earlier texts, or a file, is part of `memory`; it `learns` if either does.
    Raises ValueError for a tree with drawn tokens or scouts.
    """

    def __init__(self, inner: Drafter, times: Mapping[int, float], keep: bool = False):
        super().__init__(times, Odds(prior_by_rank), keep)
        self.inner, self.name = inner, f"{inner.name}, cost-aware"
        self.learns = self.keep or getattr(inner, "learns", False)

    def start(self, prompt: list[int]) -> None:
        super().start(prompt)
        self.inner.start(prompt)
        self.memory = "; ".join(filter(None, (self.memory, getattr(self.inner, "memory", None)))) or None

    def propose(self, context: DraftContext) -> DraftTree:
        tree = self.inner.propose(context)
        if tree.draft_laws is not None or tree.scouts:
            what = "drawn tokens" if tree.draft_laws is not None else "scouts"
            raise ValueError(
                f"{self.inner.name} proposes {what}, which may not be left out by their odds; use it as it is"
            )
        tokens = tree.tokens.tolist()
        self.below = [{tokens[child]: child for child in children} for children in tree.children]
        return super().propose(context)

    def offers(self, path: list[int]) -> Iterable[Offer]:
        node = 0
        for token in path:
            node = self.below[node][token]
        for rank, token in enumerate(self.below[node]):
            yield token, (len(path) + 1, rank)

    def observe(self, feedback: Feedback) -> None:
        super().observe(feedback)
        self.inner.observe(feedback)

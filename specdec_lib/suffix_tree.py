"""SuffixTree: every stretch of up to 64 tokens of a text, and how often each token followed it.

Follows SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975) for what is counted. That a stretch seen once is kept as
a position in the text, and unfolded when it is seen again, is ours.
Left out: removing texts, and stretches longer than 64.
"""

from collections.abc import Sequence

DEPTH = 64  # tokens of a stretch, at most
FLOOR = 0.1  # shares below this are never asked for


class Node:
    """A stretch of tokens. count: how often it was seen. at: where in the text the first one goes on.

    Unfolded (children is not None): children by token, whose counts sum to `gone`; likely holds every child whose share
    of them is FLOOR or more, and at most 2 / FLOOR others.
    """

    __slots__ = ("count", "at", "gone", "children", "likely")

    def __init__(self, at: int):
        self.count, self.at, self.gone, self.children, self.likely = 1, at, 0, None, None

    def unfold(self, text: Sequence[int | None]) -> None:
        """What is known of the first one alone becomes its first child."""
        self.children, self.likely = {}, []
        if self.at < len(text) and text[self.at] is not None:
            self.children[text[self.at]] = Node(self.at + 1)
            self.likely.append(text[self.at])
            self.gone = 1

    def go(self, token: int, at: int) -> "Node | None":
        """One more stretch goes on with this token: the child, or None where it is new here."""
        self.gone += 1
        child = self.children.get(token)
        new = child is None
        if new:
            child = self.children[token] = Node(at)
        else:
            child.count += 1
        # a share only grows when its token is seen, so a likely child is found then or was before
        if child.count >= FLOOR * self.gone and token not in self.likely:
            self.likely.append(token)
            if len(self.likely) > 2 / FLOOR:
                self.likely = [t for t in self.likely if self.children[t].count >= FLOOR * self.gone]
        return None if new else child


class SuffixTree:
    """text: all tokens, None behind each text that ended. operations: nodes visited by add, for the tests of cost.

    A token takes at most DEPTH steps. Of a stretch that was never seen before nothing is stored but where it goes on,
    so a text without repetitions takes one node a token.
    """

    def __init__(self):
        self.text: list[int | None] = []
        self.root = Node(0)
        self.root.children, self.root.likely = {}, []
        self.riding: list[tuple[Node, int]] = []  # ends of the text seen before, the longest first, with their lengths
        self.operations = 0

    def add(self, token: int) -> None:
        at = len(self.text) + 1  # where this token's own continuation will stand
        riding = []
        for node, depth in [*self.riding, (self.root, 0)]:
            if depth == DEPTH:
                continue
            self.operations += 1
            if node.children is None:
                node.unfold(self.text)
            child = node.go(token, at)
            if child is not None:
                riding.append((child, depth + 1))
        self.text.append(token)
        self.riding = riding

    def end(self) -> None:
        """A text ends: no stretch goes across."""
        self.text.append(None)
        self.riding = []

    def longest(self) -> tuple[Node, int] | None:
        """The longest end of the text that stood before and went on there, with its length; None if there is none."""
        return next(((node, depth) for node, depth in self.riding if self.after(node)), None)

    def after(self, place: Node | int) -> list[tuple[int, float, Node | int]]:
        """(token, share, place behind it) of what follows a place with a share of FLOOR or more.

        A place is a node, or a position in the text where only one stretch went.
        """
        if isinstance(place, Node) and place.children is not None:
            found = ((token, place.children[token]) for token in place.likely)
            shares = [(token, child.count / place.gone, child) for token, child in found]
            return [entry for entry in shares if entry[1] >= FLOOR]
        at = place.at if isinstance(place, Node) else place
        if at >= len(self.text) or self.text[at] is None:
            return []
        return [(self.text[at], 1.0, at + 1)]

"""One colour a kind of token, a law and a method, the same in figures, terminals and pages.

Our own choice from Okabe and Ito's palette, then from Tol's muted one; colour-blind readers can tell either apart.
Left out: figures (plots.py), coloured texts (render.py).
"""

COLOURS = {
    "target": "#0072B2",  # p
    "draft": "#E69F00",  # q
    "accepted": "#009E73",
    "rescued": "#CC79A7",
    "rejected": "#D55E00",
    "recovered": "#D55E00",
    "bonus": "#56B4E9",
    "autoregressive": "#666666",
    "greedy": "#56B4E9",
    "lossless": "#009E73",
    "lenience": "#CC79A7",
    "lossy": "#AA4499",
    "cascade": "#661100",
    "ensemble": "#DDAA33",
    "topk": "#E69F00",
    "typical": "#117733",
    "fly": "#332288",
    "fly-code": "#6699CC",
    "kl": "#999933",
    "judge": "#0072B2",
    "autojudge": "#44AA99",
    "reflective": "#882255",
    "words": "#666666",  # the control of lesson 05
    "csd": "#CC6677",
    "csd-rate": "#DDCC77",
    "csd-memory": "#88CCEE",
    "csd-gate": "#BBCC33",
    "pld": "#EE7733",
    "rest": "#004488",
    "lookahead": "#BB5566",
    "recycling": "#228833",
    "suffix": "#AA3377",
    "logitspec": "#009988",
    "logitspec-cost": "#CC3311",
    "paper": "#000000",
}

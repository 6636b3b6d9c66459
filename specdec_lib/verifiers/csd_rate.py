"""CSD with a rate beside the count: a pair passes only if the draft's token is mostly turned down for that very word.

Our own. A count grows with calibration, so in the end common slips pass it, too; a rate does not. It says nothing of
how well the target goes on behind a word that it would not have used: that takes the gate. Read csd.py first.
Left out: other remedies (a context in the key, trust that is withdrawn).
"""

from collections.abc import Collection

from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.verifiers.csd import CSD


class CSDRate(CSD):
    """CSD, and rate(x, t*) >= rate: of the times x was drafted at a position reached, the share where the target wanted
    t*. rate 0 is CSD. ValueError unless 0 <= rate <= 1, and for what CSD refuses.
    """

    def __init__(
        self, memory: CorrectionMemory, lambda_: float = 6.0, tau: float = 0.01, rate: float = 0.3,
        never: Collection[int] = (), name: str = "csd-rate",
    ):  # fmt: skip
        super().__init__(memory, lambda_, tau, never, name)
        if isinstance(rate, bool) or not 0 <= rate <= 1:
            raise ValueError(f"rate of {name}, the least share of a pair, must be between 0 and 1; got {rate!r}")
        self.rate = float(rate)

    def remembers(self, x: int, best: int) -> bool:
        return super().remembers(x, best) and self.memory.rate(x, best) >= self.rate

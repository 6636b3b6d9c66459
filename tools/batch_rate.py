"""Prompts a minute on the pocket pair: the loop, one prompt after the other, against batches of several sizes.
Our own measurement; run it alone on the machine. docs/performance.md has what it gave.
Leaves out equality with the loop, which tests/test_batch.py shows.
"""

import argparse
import time

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import problems
from specdec_lib.sampling import SamplingSettings
from specdec_lib.zoo import load_pair

MAX_NEW_TOKENS = 260


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200, help="prompts in batches")
    parser.add_argument("--alone", type=int, default=20, help="prompts one after the other")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64], help="prompts at once")
    options = parser.parse_args()
    pair = load_pair()
    texts = [prompt_ids(pair.tokenizer, problem.question) for problem in problems("test", options.n, 1)]
    drafter = ModelDrafter(pair.draft, 8)
    for temperature in (0.0, 1.0):
        settings = SamplingSettings(temperature)
        session = Session(pair.target, drafter, settings=settings, stops=pair.stops)
        session.start(texts[0]).run(40)  # warm up
        began = time.perf_counter()
        for text in texts[: options.alone]:
            session.start(text).run(MAX_NEW_TOKENS)
        alone = 60 * options.alone / (time.perf_counter() - began)
        for size in options.sizes:
            began = time.perf_counter()
            decode_batch(pair.target, texts, MAX_NEW_TOKENS, drafter, settings=settings, stops=pair.stops, size=size)
            together = 60 * options.n / (time.perf_counter() - began)
            print(
                f"temperature {temperature:g}: {alone:.0f} prompts a minute one by one, {together:.0f} in batches of "
                f"{size}: {together / alone:.1f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Benchmark: several ways to decode the same prompts, in one process, interleaved, every call timed as a whole.

Our own. All arms share the model objects, prompts, length limit, dtype and kind of cache (dynamic), and count their
tokens alike: new ids, EOS included. Seconds run from the prompt's ids to the answer's, prefill included.
Left out: what the calls say (speed.py, ratios.py), their file (kept_calls.py), and Hugging Face's arms (hf_arms.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from specdec_lib.conversation import as_spec_bench, prompt_of
from specdec_lib.decode import Session, check_prompt
from specdec_lib.drafters import DraftContext, ModelDrafter
from specdec_lib.hf_arms import HF_METHODS, HFArm, PassWatch, can_assist
from specdec_lib.kept_calls import KeptCalls, packed, unpacked, unpacked_costs
from specdec_lib.machine import now, pass_times
from specdec_lib.methods import METHODS, Method, build_method, method_label, parse_method, tuned_knobs
from specdec_lib.pricing import remember_prices
from specdec_lib.ratios import ratios
from specdec_lib.sampling import COLDEST, RandomChance, SamplingSettings
from specdec_lib.speed import Call, Costs, Watched, results
from specdec_lib.tasks import Task
from specdec_lib.trace import Trace
from specdec_lib.whole import check_whole
from specdec_lib.zoo import Pair, quiet

BASE = "autoregressive"
WATCHED = 2  # prompts on which passes are counted, before anything is timed


@dataclass
class OwnArm:
    """A method of this library as an arm. What it learns from one answer to the next is forgotten by renew()."""

    text: str
    pair: Pair
    settings: SamplingSettings
    max_new_tokens: int
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.method = build_method(self.text, self.pair)

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def knobs(self) -> dict[str, float]:
        return self.method.knobs

    @property
    def lossless(self) -> bool:
        return self.method.verifier.lossless

    @property
    def prices(self) -> dict[str, float] | None:
        """The T(k) that the drafter buys its nodes by, in seconds, k as text."""
        times = getattr(self.method.drafter, "times", None)
        return times and {str(k): seconds for k, seconds in times.items()}

    def run(self, prompt: Sequence[int], seed: int) -> Trace:
        method = self.method
        session = Session(
            self.pair.target, method.drafter, method.verifier, self.settings, self.pair.stops, seed=seed
        )  # fmt: skip
        return session.start(prompt).run(self.max_new_tokens)

    @property
    def learns(self) -> bool:
        return any(getattr(part, "learns", False) for part in (self.method.drafter, self.method.verifier))

    @property
    def has_draft_model(self) -> bool:
        return isinstance(self.method.drafter, ModelDrafter)

    @property
    def fixed_gamma(self) -> int | None:
        """The draft length, if a draft model drafts chains of one length: what D(1) and the prediction are for."""
        drafter = self.method.drafter
        fixed = type(drafter) is ModelDrafter and not drafter.siblings and drafter.gamma > 0
        return drafter.gamma if fixed else None


# ---- which arms ------------------------------------------------------------------------------------------------


def default_methods(temperature: float) -> list[str]:
    """Plain decoding, Hugging Face's three, and ours that are lossless at this temperature."""
    ours = ["greedy"] if temperature < COLDEST else ["lossless", "block"]
    return [BASE, *HF_METHODS, *(name for name in ours if name in METHODS)]


def plan(
    methods: str | None, gamma: int | None, temperature: float, pair: str = ""
) -> list[tuple[str, dict[str, float]]]:
    """The arms that a text such as "greedy,lenience:lenience=0.1,gamma=4" asks for, as (name, knobs).

    autoregressive is always the first: the others' speed-up is over it. gamma: the draft length of every method that
    has one and was not given its own. pair: whose own settings stand in for knobs that are not given, by its name.
    ValueError for a method or knob that does not exist, or that comes twice.
    """
    asked = default_methods(temperature) if methods is None else split_methods(methods)
    found: list[tuple[str, dict[str, float]]] = []
    tuned = tuned_knobs(pair)
    for text in asked:
        name, knobs = parse_method(text, METHODS | HF_METHODS, tuned)
        if gamma is not None and "gamma" in knobs and "gamma=" not in text:
            knobs["gamma"] = gamma
        if name == "greedy" and temperature >= COLDEST:
            raise ValueError(f"greedy verifies temperature 0 only; at temperature {temperature:g} take lossless")
        if (name, knobs) in found:
            raise ValueError(f"{method_label(name, knobs)} is asked for twice in --methods")
        found.append((name, knobs))
    return [(BASE, {}), *(arm for arm in found if arm != (BASE, {}))]


def split_methods(text: str) -> list[str]:
    """ "greedy,lenience:lenience=0.1,gamma=4" as ["greedy", "lenience:lenience=0.1,gamma=4"]: a piece with = and
    without : is one more knob of the method before it. ValueError where there is none, or nothing at all.
    """
    found: list[str] = []
    for piece in (part.strip() for part in text.split(",")):
        if "=" in piece and ":" not in piece:
            if not found or ":" not in found[-1]:
                raise ValueError(f"{piece!r} in --methods belongs to no method; write METHOD:{piece}")
            found[-1] += f",{piece}"
        elif piece:
            found.append(piece)
    if not found:
        raise ValueError("--methods names no method")
    return found


# ---- the run ---------------------------------------------------------------------------------------------------


def bench(
    pair: Pair, tasks: Sequence[Task], methods: str | None = None, seed: int = 0, temperature: float = 0.0,
    gamma: int | None = None, max_new_tokens: int = 128, repeats: int = 3, progress: bool = True,
    keep: KeptCalls | None = None,
) -> dict:  # fmt: skip
    """Time every method on every task. Prompt number i is drawn with seed + i in every arm and every repeat.

    First every arm answers one prompt (warm-up) and WATCHED prompts with its passes counted; none of that is timed.
    Then each repeat goes through the prompts, and at each prompt through all arms, another one first every time.
    After each prompt T(k) and D(1) are measured once, at the median context of its plain answer.

    Where tasks are turns of Spec-Bench's questions, `answers` are the first repeat's in its format, a list a method,
    and `specbench` its figures beside ours, over plain decoding. Earlier answers in a conversation are plain greedy
    decoding's, the same for all methods.

    Returns rows (speed.results says what is in them) and, beside them, what was measured on the way: `ratios` of any
    two arms (ratios.py), `prices`, the T(k) that an arm buys its nodes by. keep: calls already made are not made again,
    prompt by prompt; where a method learns from answer to answer, repeat by repeat. Ctrl-C after a whole repeat ends
    the run there: `interrupted` is then true and `repeats` says how many are in. ValueError for counts below 1, a bad
    method, and a draft, or a prompt with its answer, beyond the target's context.
    """
    settings, keep = SamplingSettings(temperature), keep or KeptCalls()
    planned = plan(methods, gamma, temperature, pair.name)
    check_counts(max_new_tokens=max_new_tokens, repeats=repeats, prompts=len(tasks))
    if methods is None and not can_assist(pair):
        planned = [arm for arm in planned if arm[0] != "hf-assisted"]
    arms = [_arm(name, knobs, pair, settings, max_new_tokens) for name, knobs in planned]
    longest_draft = max((arm.fixed_gamma or 0 for arm in arms), default=0)
    if longest_draft + 2 > pair.target.context:
        raise ValueError(
            f"a draft of {longest_draft} tokens does not fit the target's context of {pair.target.context}"
        )
    prompts = _prompts(pair, tasks, max_new_tokens, progress)
    keep.begin(prompts)
    _same_prices(arms, pair, keep)
    few = prompts[:WATCHED]
    total = len(arms) * (1 + len(few) + repeats * len(prompts))
    with quiet(bars=True), tqdm(total=total, desc="bench", unit="answer", disable=not progress) as bar:
        bar.set_postfix_str("warm-up")
        for arm in arms:
            arm.run(prompts[0], seed)
            bar.update()
        watched = []
        for arm in arms:
            watched.append(_watch(arm, pair, few, seed))
            bar.update(len(few))
        calls, costs = _repeats(arms, pair, prompts, repeats, seed, settings, bar, keep)
        done = 1 + calls[-1].repeat
    found = results(arms, calls, costs, watched, tasks, pair, temperature, seed)
    found["ratios"] = ratios([_label(arm) for arm in arms], calls, seed)
    found["prices"] = {_label(arm): arm.prices for arm in arms if isinstance(arm, OwnArm) and arm.prices}
    if all(task.question for task in tasks):
        found |= as_spec_bench(arms, calls, tasks, pair)
    return {
        **found,
        "n": len(tasks),
        "repeats": done,
        "interrupted": done < repeats,
        "warm_up_answers": 1 + len(few),  # an arm, before the timed ones
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
    }


def _same_prices(arms: list, pair: Pair, keep: KeptCalls) -> None:
    """Let all calls buy at the prices of the run that is gone on with; a new run's prices are kept for that."""
    buyers = [arm for arm in arms if isinstance(arm, OwnArm) and arm.prices]
    kept = keep.get("prices")
    if buyers and kept is None:
        keep.add("prices", buyers[0].prices)
    elif buyers:
        remember_prices(pair.target, {int(k): seconds for k, seconds in kept.items()})
        for arm in buyers:
            arm.renew()


def _label(arm: "OwnArm | HFArm") -> str:
    return method_label(arm.name, arm.knobs)


def check_counts(**counts: int) -> None:
    """ValueError unless every count is a whole number, 1 or more."""
    for name, value in counts.items():
        check_whole(name, value, 1)


def _arm(name: str, knobs: dict, pair: Pair, settings: SamplingSettings, max_new_tokens: int) -> "OwnArm | HFArm":
    if name in HF_METHODS:
        return HFArm(name, knobs, pair, settings.temperature, max_new_tokens)
    text = f"{name}:" + ",".join(f"{knob}={value!r}" for knob, value in knobs.items())
    return OwnArm(text, pair, settings, max_new_tokens)


def _prompts(pair: Pair, tasks: Sequence[Task], max_new_tokens: int, progress: bool) -> list[list[int]]:
    known: dict[tuple, list[int]] = {}  # answers to earlier turns, which the first bar is for
    quick = not progress or not any(task.before for task in tasks)
    shown = tqdm(tasks, desc="prompts", unit="prompt", disable=quick)
    prompts = [check_prompt(prompt_of(pair, task, known, max_new_tokens), pair.target) for task in shown]
    longest = max(map(len, prompts))
    if longest + max_new_tokens > pair.target.context:
        raise ValueError(
            f"a prompt of {longest} tokens and an answer of {max_new_tokens} do not fit the target's context of "
            f"{pair.target.context}; ask for at most {pair.target.context - longest} new tokens"
        )
    return prompts


def _watch(arm: "OwnArm | HFArm", pair: Pair, prompts: list[list[int]], seed: int) -> Watched:
    """Answers with every forward pass of both models counted."""
    tokens, began = 0, now(pair.target.device)
    with PassWatch(pair.target.model) as target, PassWatch(pair.draft.model) as draft:
        for i, prompt in enumerate(prompts):
            tokens += len(_ids(arm.run(prompt, seed + i)))
    taken = now(pair.target.device) - began
    unseen = isinstance(arm, OwnArm) and pair.draft.compiled
    return Watched(len(prompts), tokens, taken, target, None if unseen else draft)


def _repeats(
    arms: list, pair: Pair, prompts: list[list[int]], repeats: int, seed: int, settings: SamplingSettings, bar: tqdm,
    keep: KeptCalls,
) -> tuple[list[Call], Costs]:  # fmt: skip
    """The calls of all whole repeats, and what passes cost. KeyboardInterrupt goes on only if none is whole."""
    whole: list[Call] = []
    costs = Costs()
    try:
        for repeat in range(repeats):
            bar.set_postfix_str(f"repeat {repeat + 1} of {repeats}")
            for arm in arms:
                arm.renew()
            calls: list[Call] = []
            keys = [f"calls {repeat} {i}" for i in range(len(prompts))]
            afresh = any(arm.learns for arm in arms) and not all(map(keep.get, keys))
            for i, (key, prompt) in enumerate(zip(keys, prompts, strict=True)):
                if afresh or keep.get(key) is None:
                    made = []
                    turn = (repeat * len(prompts) + i) % len(arms)
                    for at in [*range(turn, len(arms)), *range(turn)]:
                        made.append(_timed(arms, at, pair, prompt, i, repeat, seed))
                        bar.update()
                    plain = next(call for call in made if call.arm == 0)
                    cost = _measure_costs(arms, pair, prompt, plain.ids, settings)
                    keep.add(key, {"calls": list(map(packed, made)), "costs": cost})
                else:
                    made = list(map(unpacked, keep.get(key)["calls"]))
                    cost = unpacked_costs(keep.get(key)["costs"])
                    bar.update(len(arms))
                calls += made
                costs.add(*cost)
            whole += calls
    except KeyboardInterrupt:
        if not whole:
            raise
    return whole, costs


def _timed(arms: list, at: int, pair: Pair, prompt: list[int], i: int, repeat: int, seed: int) -> Call:
    began = now(pair.target.device)
    answer = arms[at].run(prompt, seed + i)
    seconds = now(pair.target.device) - began
    return Call(at, repeat, i, seconds, _ids(answer), answer if isinstance(answer, Trace) else None)


def _ids(answer: Trace | list[int]) -> list[int]:
    return answer.ids if isinstance(answer, Trace) else answer


# ---- what passes cost ------------------------------------------------------------------------------------------


def _measure_costs(
    arms: list, pair: Pair, prompt: list[int], answer: list[int], settings: SamplingSettings
) -> tuple[int, dict[int, float], dict[int, float | None]]:
    """The median context of this plain answer, T(k) and D(1) there: k = 1 and gamma + 1 for every fixed gamma."""
    gammas = sorted({arm.fixed_gamma for arm in arms if arm.fixed_gamma})
    context = min(len(prompt) + len(answer) // 2, pair.target.context - max(gammas, default=0) - 1)
    target_s = pass_times(pair.target, (1, *(gamma + 1 for gamma in gammas)), context, repeats=1)
    text = [*prompt, *answer][:context]
    return context, target_s, {gamma: draft_step_s(pair, gamma, text, settings) for gamma in gammas}


def draft_step_s(pair: Pair, gamma: int, ids: Sequence[int], settings: SamplingSettings) -> float | None:
    """D(1): seconds of one of gamma draft steps after these ids, as the loop takes them, draw included.

    None where the text has outgrown the draft's context, so that nothing is drafted.
    """
    drafter = ModelDrafter(pair.draft, gamma)
    device = pair.target.device
    chance = RandomChance(torch.Generator(device=device).manual_seed(0))
    adjuster = settings.adjuster(len(ids), sorted(pair.stops.eos_token_ids), device)
    context = DraftContext(list(ids), gamma, pair.target.vocab_size, adjuster, chance, device)
    drafter.start(list(ids))
    drafter.propose(context)  # reads the text, and warms up
    began = now(device)
    depth = drafter.propose(context).depth
    seconds = now(device) - began
    pair.draft.start()
    return seconds / depth if depth else None

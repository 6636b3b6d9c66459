"""Are texts that are drafted without a model plain greedy decoding's? In float32, where rounding ties no two tokens.

Our own. In half precision a row's logits move with the number of rows in its pass, and near-ties fall differently; that
is rounding, not the method. So every method decodes the prompts with the target's weights in float32, in the loop.
Left out: methods above temperature 0 (their laws are tested exactly), and Hugging Face's.
"""

from specdec_lib import plots
from specdec_lib.colours import COLOURS
from specdec_lib.conversation import prompt_of
from specdec_lib.decode import decode
from specdec_lib.experiments.base import Lab, table
from specdec_lib.experiments.recording import POCKET_TOKENS, in_float32
from specdec_lib.methods import build_method
from specdec_lib.presets import data_folder
from specdec_lib.tasks import SPEC, choose_tasks

WHAT = "in float32: is what is drafted without a model plain greedy decoding's, text by text?"
PROBLEMS = 60
ANY_PAIR = True
PLAIN, METHODS = "autoregressive", ("pld", "logitspec-cost", "logitspec")
LONGEST = 64  # new tokens a text, of a pair that is no pocket pair


def run(lab: Lab) -> dict:
    """rows: by kind of task, plain decoding's ids, and for each method `of`, `equal`, and the numbers of the prompts
    whose texts are `different`. Prompts are n problems, or all turns of n questions, numbered from 0; a second turn's
    holds plain decoding's answer to the first.

    ValueError for a quantised target, whose weights cannot be had in float32.
    """
    pair = in_float32(lab.pair)
    pocket = pair.name.startswith("pocket")
    longest, file = (POCKET_TOKENS, None) if pocket else (LONGEST, data_folder() / SPEC)
    tasks, known = choose_tasks(pair.name, lab.n, lab.seed, file), {}
    prompts = [prompt_of(pair, task, known, longest) for task in tasks]

    def decoded(name: str, numbers: list[int]) -> list[list[int]]:
        way = build_method(name, pair)
        return [
            decode(pair.target, prompts[i], longest, way.drafter, way.verifier, stops=pair.stops).ids
            for i in lab.watch(name, numbers)
        ]

    def row(name: str, group: str, numbers: list[int], plain: list[list[int]]) -> dict:
        pairs = zip(numbers, decoded(name, numbers), plain, strict=True)
        different = [i for i, ids, right in pairs if ids != right]
        counts = {"of": len(numbers), "equal": len(numbers) - len(different), "different": different}
        return {"method": name, "group": group, **counts}

    rows = []
    for group in dict.fromkeys(task.group for task in tasks):
        about = {"group": group, "numbers": [i for i, task in enumerate(tasks) if task.group == group]}
        plain = lab.rows.get(
            f"{PLAIN} {group}",
            lambda about=about: {"method": PLAIN, **about, "ids": decoded(PLAIN, about["numbers"])},
        )
        rows.append(plain)
        rows += [
            lab.rows.get(f"{name} {group}", lambda a=about, name=name, ids=plain["ids"]: row(name, **a, plain=ids))
            for name in METHODS
        ]
    return {"rows": rows}


def by_method(result: dict) -> dict[str, list[dict]]:
    """The rows of each method but plain decoding, kind by kind."""
    names = dict.fromkeys(row["method"] for row in result["rows"] if row["method"] != PLAIN)
    return {name: [row for row in result["rows"] if row["method"] == name] for name in names}


def together(rows: list[dict]) -> tuple[int, int]:
    """(texts that are equal, texts compared)."""
    return sum(row["equal"] for row in rows), sum(row["of"] for row in rows)


def text(result: dict) -> str:
    methods = by_method(result)
    groups = [row["group"] for row in result["rows"] if row["method"] == PLAIN]
    lines = [
        (name, *("{} of {}".format(*together(part)) for part in (*([row] for row in rows), rows)))
        for name, rows in methods.items()
    ]
    shown = [
        "the target's weights in all arms: float32",
        table(("texts equal to plain decoding's", *groups, "all"), lines),
    ]
    shown += [
        f"NOT equal: {name}, prompts {row['different']}"
        for name in methods
        for row in methods[name]
        if row["different"]
    ]
    return "\n".join(shown)


def figure(result: dict):
    """A bar a method: its texts that are equal, of those compared (the line)."""
    counts = {name: together(rows) for name, rows in by_method(result).items()}
    equal, of = [equal for equal, _ in counts.values()], max(of for _, of in counts.values())
    title = f"In float32 at least {min(equal)} of {of} texts are plain decoding's"
    fig, ax = plots.figure(title, "", "texts", (7, 3.6))
    bars = ax.bar(list(counts), equal, color=[COLOURS[name] for name in counts])
    ax.bar_label(bars)
    ax.axhline(of, color="black", ls="--")
    ax.set(ylim=(0, 1.15 * of))
    return fig

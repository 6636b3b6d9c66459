"""Write README's table of measured figures from data/pocket/eval.json. `python tools/readme.py`; a test keeps it equal.

Our own. No figure in README is typed by hand.
Left out: the rest of README.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- measured: [^\n]* -->\n).*(<!-- end measured -->)", re.DOTALL)


def table(result: dict) -> str:
    """The measured table as Markdown, with the command and the machine it was measured on."""
    target, draft = result["rows"]
    origin = result["provenance"]
    standard = result["lenience_frontier"][0]
    doubled = next((p for p in result["lenience_frontier"] if p["kept"] >= 2 * standard["kept"]), None)
    lenient = "never reaches it" if doubled is None else f"{doubled['accuracy']:.1%} (lenience {doubled['lenience']:g})"
    low, high = target["accuracy_interval"]
    draft_low, draft_high = draft["accuracy_interval"]
    rows = {
        "target, greedy accuracy": f"{target['accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%})",
        "draft, greedy accuracy": f"{draft['accuracy']:.1%} ({draft_low:.1%} to {draft_high:.1%})",
        "alpha at temperature 1": f"{result['alpha']:.2f}",
        "kept of 8 drafted tokens, greedy, lossless": f"{result['kept']:.2f}",
        "MAT, greedy (prefill not counted)": f"{result['mat']:.2f}",
        "of the first rejected draft tokens, right by the checker": f"{result['right_among_rejected']:.0%}",
        "c, draft step / target step": f"{result['c']:.2f}",
        "tokens an answer": f"{result['answer_tokens']:.0f}",
        "accuracy where greedy lenience keeps twice as much": lenient,
    }
    lines = ["| | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    lines.append(
        f"`specdec eval --pair pocket --n {result['n']} --seed {origin['seed']}`, test problems, float32, "
        f"{origin['device']}, {origin['threads']} threads."
    )
    return "\n".join(lines) + "\n"


def with_table(readme: str, result: dict) -> str:
    """README with its measured block written anew."""
    return BLOCK.sub(lambda m: m[1] + table(result) + m[2], readme)


if __name__ == "__main__":
    result = json.loads((ROOT / "data/pocket/eval.json").read_text())
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text(), result))

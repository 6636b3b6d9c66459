"""What the cells of a lesson call: start, load_once, table, recorded, experiment, show. A lesson's own code stands out.

Our own. FIRST_CELL is the first code cell of every lesson; tests compare them.
Left out: installing on Colab (colab.py), figures (plots.py), the colouring itself (render.py).
"""

import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cache

FIRST_CELL = """\
import subprocess
import sys
from pathlib import Path

if "google.colab" in sys.modules:
    REPOSITORY = ""  # on Colab: the address you cloned this course from
    course = Path("specdec-course").resolve()
    if not course.exists():
        if not REPOSITORY:
            raise ValueError("set REPOSITORY to the address you cloned this course from")
        subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(course)], check=True)
    sys.path.insert(0, str(course))

    from specdec_lib.colab import install

    install(course)

from specdec_lib.notebook import start

start()"""

NOISY = ("transformers", "torch", "bitsandbytes", "accelerate", "huggingface_hub")


def start() -> None:
    """Make a notebook ready: quiet third parties, the course's figures, two threads; print versions and device."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # read when transformers is imported, so set first
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for name in NOISY:
        warnings.filterwarnings("ignore", module=rf"{name}(\.|$)")
        logging.getLogger(name).setLevel(logging.ERROR)

    import torch

    from specdec_lib.machine import device_name, memory_bytes, versions
    from specdec_lib.plots import use_style

    torch.set_num_threads(2)
    use_style()
    known = versions()
    print("  ".join(f"{name} {known[name]}" for name in ("python", "torch", "transformers", "numpy")))
    memory = memory_bytes()
    print(f"{device_name('cpu')}, {torch.get_num_threads()} threads, {_gib(memory)} of memory")
    for index in range(torch.cuda.device_count()):
        print(f"{device_name(f'cuda:{index}')}, {_gib(torch.cuda.get_device_properties(index).total_memory)}")


def _gib(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 2**30:.1f} GiB"


@cache
def load_once(name: str = "pocket"):
    """The pair of models of this name. Running a cell again gives the same pair, so memory never holds two."""
    from specdec_lib.zoo import load_pair

    return load_pair(name)


def table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows (all with the same keys) as aligned text. Floats get two decimals, None is n/a; numbers lean right."""
    names = list(rows[0])
    columns = {name: [name, *(_cell(row[name]) for row in rows)] for name in names}
    width = {name: max(map(len, texts)) for name, texts in columns.items()}
    right = {name for name in names if all(isinstance(row[name], int | float | None) for row in rows)}
    for line in range(len(rows) + 1):
        cells = [columns[n][line].rjust(width[n]) if n in right else columns[n][line].ljust(width[n]) for n in names]
        print("  ".join(cells).rstrip())


def recorded(name: str, command: str, folder: str = "bench") -> dict | None:
    """Results of data/FOLDER/NAME.json; prints where they come from. Without the file: None, and what makes it.

    command: how the file is made, without --json. The results: {"provenance": ..., "rows": [...]}, see provenance.py.
    """
    from specdec_lib.zoo import data_folder

    file = data_folder() / folder / f"{name}.json"
    if not file.is_file():
        print(f"data/{folder}/{name}.json is not here; this makes it:\n{command} --json data/{folder}/{name}.json")
        return None
    results = json.loads(file.read_text())
    origin = results["provenance"]
    known = ", ".join(f"{package} {version}" for package, version in origin["versions"].items() if version)
    commit = (origin["git_sha"] or "no commit")[:7] + (", with changes" if origin["dirty"] else "")
    where = f"{origin['device']}, {origin['threads']} threads, {origin['dtype']}"
    print(f"recorded {origin['date'][:10]} on {where} (commit {commit})\n{known}")
    print(origin["note"] + "\n" if origin.get("note") else "")  # such as: dequantised from 4 bits
    return results


def experiment(name: str, pair: str = "pocket") -> dict | None:
    """The recorded result of one of the course's experiments: prints the command that made it, and its table.

    None, and what makes it, without one.
    """
    from specdec_lib.experiments import find

    results = recorded(f"{name}-{pair}", f"specdec experiment {name} --pair {pair}", "experiments")
    if results is not None:
        n, seed = results["provenance"]["arguments"]["n"], results["provenance"]["seed"]
        print(f"made by: specdec experiment {name} --pair {pair} --n {n} --seed {seed}\n")
        print(find(name).text(results))
    return results


def speeds(results: dict) -> None:
    """Print a benchmark's tokens per second, over plain decoding with its 95 % interval, and kept."""
    rows = []
    for row in results["rows"]:
        between = row["speedup_interval"] and "{:.2f} to {:.2f}".format(*row["speedup_interval"])
        name = row["method"] if row["gamma"] is None else f"{row['method']}, {row['gamma']} drafts"
        ratio = {"tok/s": row["tok_per_s"], "over plain": row["speedup"], "95 % interval": between}
        rows.append({"rule": name, **ratio, "kept": row["kept"]})
    table(rows)


def _cell(value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def show(trace, tokenizer, title: str = "") -> None:
    """Show an emitted text, each token coloured by how it came: accepted, rescued, recovered or bonus."""
    from IPython.display import HTML, display

    from specdec_lib.render import trace_html

    display(HTML(trace_html(trace, tokenizer, title)))

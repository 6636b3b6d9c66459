"""docs/retrieval.md says what the registry and the code say: methods, knobs, what persists, Spec-Bench's groups.

Follows docs/retrieval.md and specdec_lib/methods.py.
Left out: the page's commands (test_csd_page.py takes those of every page), and words that no test can read.
"""

import re
from pathlib import Path

import pytest
from test_methods import tiny_pair

from specdec_lib import methods
from specdec_lib.drafters import CostAware, Lookahead, ModelDrafter, NoDrafter, PromptLookup
from specdec_lib.methods import METHODS, build_method, method_label
from specdec_lib.specbench import GROUPS

PAGE = (Path(__file__).parent.parent / "docs" / "retrieval.md").read_text()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]
NAMES = [row[0].strip("`") for row in ROWS]


class Store:
    """Any datastore: what a method is does not depend on it."""

    header = {"tokens": 1, "sha256": "0" * 64}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(methods, "store_of", lambda pair: Store())
    monkeypatch.setattr(methods, "prices_of", lambda target: {1: 1.0, 8: 1.5})


def test_every_lossless_method_without_a_draft_model_has_one_row(monkeypatch):
    def has_no_model(name):
        if ": lossy" in METHODS[name][0]:
            return False
        drafter = build_method(name, tiny_pair()).drafter
        return not isinstance(drafter, ModelDrafter | NoDrafter) and not hasattr(drafter, "model")

    draws = ("heuristic", "confidence", "controller")  # a draft model under another name
    assert [name for name in METHODS if name not in draws and has_no_model(name)] == NAMES


@pytest.mark.parametrize("name, knobs", [(row[0].strip("`"), row[2].strip("`")) for row in ROWS], ids=NAMES)
def test_a_row_s_knobs_are_the_method_s_with_their_defaults(name, knobs):
    assert f"{name}:{knobs}" == method_label(name, METHODS[name][1])
    assert build_method(name, tiny_pair()).verifier.lossless is True


@pytest.mark.parametrize("name, persists", [(row[0].strip("`"), row[3]) for row in ROWS], ids=NAMES)
def test_a_row_says_what_persists(name, persists):
    drafter = build_method(name, tiny_pair()).drafter
    assert ("`keep=1`" in persists) is ("keep" in METHODS[name][1])
    assert (persists == "the datastore") is ("datastore" in (getattr(drafter, "memory", None) or ""))
    if persists == "nothing":
        assert getattr(drafter, "memory", None) is None and not getattr(drafter, "learns", False)


def test_scouts_are_refused_where_the_page_says_so():
    assert re.search(r"Trees with\s+drawn tokens or scouts are refused", PAGE)
    from retrieval import context_of

    drafter = CostAware(Lookahead(), {1: 1.0, 64: 1.0})
    drafter.start([1, 2, 3])
    with pytest.raises(ValueError, match="scouts"):
        drafter.propose(context_of([1, 2, 3]))
    assert CostAware(PromptLookup(), {1: 1.0, 8: 1.0}).name == "pld, cost-aware"


def test_the_page_names_spec_bench_s_groups():
    assert f"groups: {', '.join(GROUPS)}." in re.sub(r"\s+", " ", PAGE)

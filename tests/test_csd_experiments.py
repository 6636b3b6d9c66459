"""CSD's experiments: memories that nest, rows that say what they are, a picture that shows them.
Follows specdec_lib/experiments/: memories, calibration and csd_*.
Left out: the rules (test_csd.py), and what is measured on real problems (data/experiments/).
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest

from specdec_lib.experiments import calibration, find, memories
from specdec_lib.experiments.base import Lab


@pytest.fixture
def lab(pair, monkeypatch, tmp_path):
    """Two problems, two short calibrations, and rows that are not measured but say which rule was asked for."""
    monkeypatch.setattr(calibration, "LENGTHS", (1, 2))
    monkeypatch.setattr(memories, "MAX_NEW_TOKENS", 30)
    monkeypatch.setattr(memories, "cache_folder", lambda: tmp_path)
    asked = []

    def measure(self, method, tasks, key=""):
        asked.append((method, key))
        kept = 2.0 if method == "greedy" else 3.0 + len(asked) / 10
        name, knobs = ("greedy", {"gamma": 8}) if method == "greedy" else (method.name, method.knobs)
        return {
            "method": name, "settings": knobs, "kept": kept, "kept_interval": [kept - 0.1, kept + 0.1],
            "accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "right": "10",
        }  # fmt: skip

    monkeypatch.setattr(Lab, "measure", measure)
    return Lab(pair, 2, 3), asked


def test_memories_nest_in_any_order_and_are_made_once(lab, monkeypatch):
    lab, _ = lab
    short, long = (memories.memory_after(lab, n) for n in (1, 3))
    between = memories.memory_after(lab, 2)
    assert [m.texts for m in (short, between, long)] == [1, 2, 3] and short.frozen and long.frozen
    for less, more in ((short, between), (between, long)):
        assert all(more.count(x, best) >= less.count(x, best) for x, best in less.pairs)
        assert sum(more.drafted.values()) > sum(less.drafted.values())
    assert memories.memory_after(lab, 0).pairs == {}
    boxes = memories.memory_after(lab, 1, ("boxes",))
    assert boxes.made["prompts"].endswith("-boxes") and boxes.drafted != short.drafted
    monkeypatch.setattr(memories, "calibrate", lambda *a, **k: 1 / 0)
    assert memories.memory_after(lab, 1) == short and memories.memory_after(lab, 1, ("boxes",)) == boxes
    other = replace(lab.pair, checksums={"target": "other", "draft": "other"})
    with pytest.raises(ZeroDivisionError):  # other weights, another file
        memories.memory_after(Lab(other, 2, 3), 1)


def test_a_row_a_length_and_rule_each_with_a_frozen_memory_of_that_length(lab):
    lab, asked = lab
    assert find("calibration") is calibration
    result = calibration.run(lab)
    plain, *rows = result["rows"]
    assert plain["method"] == "greedy"
    assert [(row["method"], row["texts"]) for row in rows] == [
        (name, length) for length in (1, 2) for name in ("csd", "csd", "csd", "csd-rate")
    ]
    for (method, key), row in zip(asked[1:], rows, strict=True):
        assert method.verifier.memory.texts == row["texts"] and method.verifier.memory.frozen
        assert key == f"after {row['texts']}" and row["kept_ratio"] == row["kept"] / 2
        assert method.verifier.never and row["trusted"] <= row["pairs"]
    assert [row["settings"]["tau"] for row in rows[:3]] == [0.1, 0.01, 0.001]
    assert "after" not in calibration.text(result) and "csd-rate" in calibration.text(result)
    kept, accuracy = calibration.figure(result).axes
    assert len(kept.containers) == len(accuracy.containers) == 4
    assert list(kept.containers[0][0].get_xdata()) == [1, 2]
    assert list(kept.containers[3][0].get_ydata()) == [row["kept"] for row in rows if row["method"] == "csd-rate"]
    plt.close("all")

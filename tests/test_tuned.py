"""A pair's own settings: they stand in for defaults, and a file that is wrong in any part is refused, by name.
Follows specdec_lib/tuned.py and methods.py; the file that ships is among those checked.
Left out: how settings are picked (test_knobs.py).
"""

import pytest
from test_methods import tiny_pair

from specdec_lib import methods, presets
from specdec_lib.bench import plan
from specdec_lib.methods import METHODS, build_method, parse_method, tuned_knobs
from specdec_lib.tuned import FILE, read_settings, settings_of, write_settings

KNOWN = {"topk": {"gamma": 8, "k": 2}, "lenience": {"gamma": 8, "lenience": 0.1}}
GOOD = '[tiny.topk]\nk = 5\npicked = "by hand"\n[tiny.lenience]\nlenience = 1\npicked = "so"\n'


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "knobs.toml").write_text(text)
        return tmp_path / "knobs.toml"

    return write


def test_a_pair_has_its_own_settings_and_another_has_none(file):
    found = settings_of("tiny", KNOWN, file(GOOD))
    assert found == {"topk": {"k": 5}, "lenience": {"lenience": 1.0}}
    assert isinstance(found["topk"]["k"], int) and isinstance(found["lenience"]["lenience"], float)
    assert settings_of("other", KNOWN, file(GOOD)) == {}


def test_no_file_means_no_settings(tmp_path):
    assert settings_of("tiny", KNOWN, tmp_path / "none.toml") == {}


def test_a_file_that_has_changed_is_read_again(file):
    settings_of("tiny", KNOWN, file(GOOD))
    import os

    changed = file(GOOD.replace("5", "6"))
    os.utime(changed, ns=(1, 1))
    assert settings_of("tiny", KNOWN, changed)["topk"] == {"k": 6}


@pytest.mark.parametrize(
    "text, message",
    [
        ("[tiny.magic]\nk = 5\npicked = 'so'", "method magic: there is no such method; the known ones are topk, len"),
        ("[tiny.topk]\nspeed = 5\npicked = 'so'", "method topk: it has no knob 'speed'; it has: gamma, k"),
        ("[tiny.topk]\nk = 5.0\npicked = 'so'", "knob k must be a whole number; got 5.0"),
        ("[tiny.topk]\nk = true\npicked = 'so'", "knob k must be a whole number; got True"),
        ("[tiny.lenience]\nlenience = '1'\npicked = 'so'", "knob lenience must be a number; got '1'"),
        ("[tiny.topk]\nk = 5", r'\[tiny.topk\]: give a table with knobs and picked = "how they were picked"'),
        ("[tiny]\ntopk = 5", r"\[tiny.topk\]: give a table"),
        ("tiny = 5", r"\[tiny\]: give a table"),
        ("[tiny.topk\nk = 5", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, text, message):
    with pytest.raises(ValueError, match=message):
        settings_of("tiny", KNOWN, file(text))


def test_settings_come_back_as_they_were_written(tmp_path):
    settings = {
        "pocket": {"topk": {"k": 3, "picked": 'a "quoted" text with a \\ in it'}},
        "pocket-uniform": {"typical": {"epsilon": 0.0003, "delta": float("inf"), "picked": "so"}},
    }
    write_settings(tmp_path / "knobs.toml", settings)
    assert read_settings(tmp_path / "knobs.toml") == settings
    assert [f.name for f in tmp_path.iterdir()] == ["knobs.toml"]


def test_a_knob_given_beats_the_pairs_own_and_that_beats_the_default(monkeypatch, file):
    tuned = settings_of("tiny", KNOWN, file(GOOD))
    assert parse_method("topk", tuned=tuned) == ("topk", {"gamma": 8, "k": 5})
    assert parse_method("topk:k=3", tuned=tuned)[1]["k"] == 3
    assert parse_method("topk")[1]["k"] == 2
    assert METHODS["topk"][1]["k"] == 2, "the table of defaults is not written to"
    monkeypatch.setattr(methods, "settings_of", lambda pair, known: tuned if pair == "tiny" else {})
    assert build_method("topk", tiny_pair()).verifier.k == 5
    assert build_method("topk:k=7", tiny_pair()).verifier.k == 7
    assert plan("topk,lenience:gamma=3", None, 0, "tiny")[1:] == [
        ("topk", {"gamma": 8, "k": 5}),
        ("lenience", {"gamma": 3, "lenience": 1.0}),
    ]
    assert plan("topk", None, 0, "other")[1] == ("topk", {"gamma": 8, "k": 2})


def test_the_shipped_settings_are_those_of_presets_and_can_be_read():
    file = presets.data_folder() / FILE
    if not file.is_file():
        pytest.skip("no settings are shipped: specdec knobs makes them")
    for pair in read_settings(file):
        assert presets.preset(pair)
        assert set(tuned_knobs(pair)) <= set(METHODS)


def test_any_two_models_do_without_the_courses_data(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path / "nothing"))
    assert tuned_knobs("a + b") == {}

"""Methods by name: knobs with defaults, what is unknown or malformed is named, lossy methods say so.
Follows specdec_lib/methods.py.
Left out: what the methods do (test_decode.py).
"""

import pytest
from test_decode import lms
from tiny import generated

from specdec_lib.colours import COLOURS
from specdec_lib.decode import Stops, decode
from specdec_lib.methods import METHODS, build_method, parse_method
from specdec_lib.zoo import Pair


class AnyWords:
    """A tokenizer that reads every text as the ids 1 and 2."""

    all_special_ids = ()

    def get_vocab(self):
        return {}

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [1, 2]}


def tiny_pair():
    target, draft = lms()
    return Pair("tiny", target, draft, AnyWords(), Stops(), {"target": "none", "draft": "none"})


CALIBRATED = ("csd", "csd-rate", "csd-memory")  # they need a memory made for the pair
TRAINED = [name for name in METHODS if name in ("judge", "autojudge", *CALIBRATED)]  # or a head
STORED = ["rest"]  # it needs a datastore


@pytest.mark.parametrize(
    "text, name, knobs",
    [
        ("greedy", "greedy", {"gamma": 8}),
        ("lossless:gamma=4", "lossless", {"gamma": 4}),
        (" lenience:lenience=0.3,gamma=4 ", "lenience", {"gamma": 4, "lenience": 0.3}),
        ("lenience:", "lenience", {"gamma": 8, "lenience": 0.1}),
        ("autoregressive", "autoregressive", {}),
    ],
)
def test_names_and_knobs(text, name, knobs):
    assert parse_method(text) == (name, knobs)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "unknown method ''"),
        ("magic", "unknown method 'magic'.*lossless"),
        ("Greedy", "unknown method 'Greedy'"),
        ("greedy:speed=9", "unknown knob 'speed' for method greedy; it has: gamma"),
        ("autoregressive:gamma=1", "it has: none"),
        ("greedy:gamma=2.5", "gamma of method greedy must be a whole number; got '2.5'"),
        ("greedy:gamma", "must be a whole number; got 'gamma'"),
        ("greedy:gamma=", "must be a whole number; got ''"),
        ("lenience:lenience=low", "must be a number; got 'low'"),
    ],
)
def test_what_is_unknown_or_malformed_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_method(text)


@pytest.mark.parametrize(
    "text", ["greedy:gamma=-1", "lenience:lenience=0", "lenience:lenience=2", "lenience:lenience=nan"]
)
def test_knobs_out_of_range_are_refused(text):
    with pytest.raises(ValueError):
        build_method(text, tiny_pair())


@pytest.mark.parametrize("name", [name for name in METHODS if name not in TRAINED + STORED])
def test_every_method_runs_and_says_whether_it_is_lossless(name):
    """A30: what is lossy by default says so, in its line of the list and in its trace."""
    pair = tiny_pair()
    method = build_method(name, pair)
    assert method.verifier.name in (name, "lossless")
    trace = decode(pair.target, [1, 2, 3], 20, method.drafter, method.verifier)
    assert trace.lossless is (": lossy" not in METHODS[name][0])
    if trace.lossless:
        assert trace.ids == generated(pair.target.model, [1, 2, 3], 20)
    assert any(r.proposed for r in trace.rounds) is (name != "autoregressive")


@pytest.mark.parametrize("name", STORED)
def test_a_method_with_a_datastore_says_how_to_get_one_where_there_is_none(name):
    with pytest.raises(ValueError, match="specdec datastore build --pair tiny"):
        build_method(name, tiny_pair())


@pytest.mark.parametrize("name", TRAINED)
def test_a_method_with_a_head_says_how_to_get_one_where_there_is_none(name):
    assert ": lossy" in METHODS[name][0]
    with pytest.raises(ValueError, match="train|calibrate"):
        build_method(name, tiny_pair())


def test_every_lossy_method_has_a_colour_of_its_own():
    lossy = [name for name, entry in METHODS.items() if ": lossy" in entry[0]]
    assert len({COLOURS[name] for name in [*lossy, "lossless", "autoregressive"]}) == len(lossy) + 2


def test_a_label_builds_the_method_again():
    pair = tiny_pair()
    for text in ("lenience:gamma=3,lenience=0.25", "greedy", "autoregressive"):
        method = build_method(text, pair)
        again = build_method(method.label, pair)
        assert (again.name, again.knobs) == (method.name, method.knobs)
    assert build_method("lenience:lenience=1", pair).verifier.lossless is True

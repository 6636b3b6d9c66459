"""Models in 8 and 4 bits: close to the whole ones, never moved, named with their dtype; what is missing is said.
Follows specdec_lib/quantise.py.
Left out: how close bitsandbytes comes on a real model (specdec selfdraft measures it).
"""

import builtins

import pytest
import torch
from test_zoo import save
from tiny import llama
from transformers import LlamaForCausalLM

from specdec_lib import quantise, zoo
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.machine import import_error, package_version
from specdec_lib.memory import size_of
from specdec_lib.quantise import compute_dtype, dtype_name, quantisation, unpacked
from specdec_lib.zoo import parameter_bytes


def works() -> bool:
    return all(package_version(name) for name in ("bitsandbytes", "accelerate")) and not import_error("bitsandbytes")


needs_bitsandbytes = pytest.mark.skipif(not works(), reason="bitsandbytes or accelerate is missing or broken here")


@pytest.fixture
def folder(tmp_path):
    config = llama(vocab=12).config
    config.hidden_size = config.intermediate_size = 64  # nf4 takes 64 weights at a time
    config.head_dim = 32
    with torch.random.fork_rng():
        torch.manual_seed(1)
        save(tmp_path / "model", LlamaForCausalLM(config).bfloat16())
    return str(tmp_path / "model")


@needs_bitsandbytes
@pytest.mark.parametrize(("kind", "most"), [("int8", 0.05), ("nf4", 0.25)])
def test_a_quantised_model_is_smaller_and_says_nearly_the_same(folder, capfd, caplog, kind, most):
    pair = zoo.load_custom(folder, f"{folder}:{kind}")
    assert pair.dtypes == {"target": "bfloat16", "draft": f"{kind}, computed in bfloat16"}
    assert pair.target.model is not pair.draft.model
    ids = torch.arange(9)[None]
    with torch.inference_mode():
        whole, reduced = (torch.softmax(m.model(ids).logits.float(), -1) for m in (pair.target, pair.draft))
    total_variation = (whole - reduced).abs().sum(-1).mean().item() / 2
    assert 0 < total_variation < most
    expected = size_of(pair.target.model.config, torch.bfloat16, kind).weight_bytes
    assert parameter_bytes(pair.draft.model) == pytest.approx(expected, rel=0.05)
    trace = decode(pair.target, [0, 2], 8, ModelDrafter(pair.draft, 3))
    assert len(trace.ids) == 8
    assert capfd.readouterr().err == "" and [r for r in caplog.records if r.name.startswith("bitsandbytes")] == []


@needs_bitsandbytes
def test_a_quantised_model_is_placed_while_it_loads_and_never_moved(folder, monkeypatch):
    """F12."""
    asked = {}
    real = zoo.AutoModelForCausalLM.from_pretrained

    def watched(source, **options):
        asked.update(options)
        model = real(source, **options)
        monkeypatch.setattr(type(model), "to", lambda self, *a, **k: pytest.fail("a quantised model was moved"))
        return model

    monkeypatch.setattr(zoo.AutoModelForCausalLM, "from_pretrained", watched)
    zoo.load_model(folder, "cpu", torch.bfloat16, "nf4")
    assert asked["device_map"] == {"": "cpu"} and asked["quantization_config"].bnb_4bit_quant_type == "nf4"
    assert asked["quantization_config"].bnb_4bit_compute_dtype == torch.bfloat16


@needs_bitsandbytes
def test_the_first_layers_of_a_quantised_model_work(folder):
    draft = zoo.load_custom(folder, f"{folder}:nf4").draft.model
    assert torch.isfinite(zoo.first_layers(draft, 1)(torch.arange(9)[None]).logits).all()


@needs_bitsandbytes
def test_an_unpacked_model_says_the_same_and_leaves_the_packed_one(folder):
    ids = torch.arange(9)[None]
    for kind, unpacks in (("nf4", True), ("int8", False)):
        model = zoo.load_custom(folder, f"{folder}:{kind}").draft.model
        packed, open_ = parameter_bytes(model), unpacked(model)
        assert (open_ is not model) == unpacks and parameter_bytes(model) == packed
        assert (parameter_bytes(open_) > packed) == unpacks
        with torch.inference_mode():
            assert torch.equal(open_(ids).logits, model(ids).logits)
    whole = zoo.load_custom(folder, folder).draft.model
    assert unpacked(whole) is whole


def test_16_bits_are_bfloat16_where_the_device_has_it_and_float16_on_a_t4(monkeypatch):
    class Selected:
        def __init__(self, device):
            pass

        __enter__ = __exit__ = lambda *a: None

    monkeypatch.setattr(torch.cuda, "device", Selected)
    for has_it, expected in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has_it=has_it: has_it)
        for stored in (torch.bfloat16, torch.float16):
            assert compute_dtype("cuda", stored) == expected
            assert compute_dtype("cpu", stored) == torch.bfloat16
        assert compute_dtype("cuda", torch.float32) == compute_dtype("cpu", torch.float32) == torch.float32


def test_figures_name_dtype_and_quantisation():
    assert dtype_name(torch.bfloat16) == "bfloat16"
    assert dtype_name(torch.float16, "nf4") == "nf4, computed in float16"


def test_an_unknown_quantisation_is_refused():
    with pytest.raises(ValueError, match="unknown quantisation 'fp8'; choose one of int8, nf4"):
        quantisation("fp8", torch.bfloat16)


def test_missing_packages_are_named_with_the_remedy(folder, monkeypatch):
    """F15."""
    monkeypatch.setattr(quantise, "package_version", lambda name: None)
    with pytest.raises(OSError, match="needs bitsandbytes and accelerate, not installed here: pip install"):
        zoo.load_custom(folder, f"{folder}:nf4")
    zoo.load_custom(folder, folder)  # what is not quantised needs neither


def test_a_build_for_another_machine_is_one_sentence(monkeypatch):
    """F14."""
    real = builtins.__import__

    def broken(name, *args, **kwargs):
        if name == "bitsandbytes":
            raise OSError("libcudart.so: undefined symbol")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(quantise, "package_version", lambda name: "1.0")
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(OSError, match="bitsandbytes 1.0 cannot be imported on this machine .*undefined symbol"):
        quantisation("int8", torch.bfloat16)

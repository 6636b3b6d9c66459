"""A model's own first layers as a model of its own: a draft that needs no training and no memory.

Follows the early-exit drafts of self-speculative decoding (LayerSkip, arXiv 2404.16710), whose models are trained for
it; here nothing is trained.
Left out: sharing the first layers' work and cache with the target.
"""

import copy

from transformers import PreTrainedModel


def first_layers(model: PreTrainedModel, n: int) -> PreTrainedModel:
    """The model with its first n layers, then its own final norm and output matrix. All weights are shared.

    ValueError for n below 1, above the number of layers, or a model whose layers are not in `.layers` or `.h`.
    """
    shared = {id(parameter): parameter for parameter in model.parameters()}
    shorter = copy.deepcopy(model, shared)
    body = shorter.base_model
    name = next((name for name in ("layers", "h") if hasattr(body, name)), None)
    if name is None:
        raise ValueError(f"cannot find the layers of {type(model).__name__}")
    layers = getattr(body, name)
    if not 1 <= n <= len(layers):
        raise ValueError(f"layers, how many to keep, must be from 1 to {len(layers)}; got {n}")
    setattr(body, name, layers[:n])
    config = shorter.config.get_text_config()
    config.num_hidden_layers = n
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:n]
    return shorter

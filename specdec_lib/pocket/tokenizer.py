"""The pocket tokenizer: the world's words, single digits and marks, as an ordinary transformers tokenizer.

Our own (no paper). Its token strings are the world's tokens (world.tokens_of) with the leading space as U+2581.
Left out: anything outside the world's vocabulary, which becomes <unk>.
"""

import random
import string

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_lib.pocket.world import EOS, FAMILIES, MARKERS, SLOTS, answer_parts, make_problem, tokens_of

SPECIAL = ["<pad>", "<s>", EOS, "<unk>", "<answer>"]
# A question becomes a prompt: <s> question <answer>; the model goes on with the answer and EOS.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'user' %}<answer>{% else %}{{ eos_token }}{% endif %}{% endfor %}"
)


def vocabulary() -> list[str]:
    """Every token of the world, special ones first, the rest sorted."""
    rng, words = random.Random(0), set(MARKERS)
    for family in FAMILIES:
        for _ in range(1000):
            problem = make_problem(rng, "train", (family,))
            words.update(tokens_of(" " + problem.question))
            words.update(t for part in answer_parts(problem) for option in part.options for t in option)
    words.update(t for wordings in SLOTS.values() for wording in wordings for t in tokens_of(wording))
    words.update(string.digits)
    words.update(" " + digit for digit in string.digits)
    return SPECIAL + sorted(words - set(SPECIAL))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, made from the world alone."""
    ids = {token.replace(" ", "\u2581"): i for i, token in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    pieces = Regex("\u2581?####|\u2581?[a-z]+|\u2581?[0-9]|\u2581?[^\\sa-z0-9\u2581]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always"),
            pre_tokenizers.Split(pieces, "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token=EOS,
        unk_token="<unk>",
        pad_token="<pad>",
        additional_special_tokens=["<answer>"],
        model_max_length=512,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def prompt_ids(tokenizer, question: str) -> list[int]:
    """The prompt of a question: <s> question <answer>."""
    ids = tokenizer(question, add_special_tokens=False)["input_ids"]
    return [tokenizer.bos_token_id, *ids, tokenizer.convert_tokens_to_ids("<answer>")]


def world_tokens(tokenizer, ids: list[int]) -> list[str]:
    """Token ids as the world's tokens, for the checker."""
    return [token.replace("\u2581", " ") for token in tokenizer.convert_ids_to_tokens(list(ids))]


def world_ids(tokenizer, tokens: list[str]) -> list[int]:
    """The ids of the world's tokens: world_tokens the other way round."""
    return tokenizer.convert_tokens_to_ids([token.replace(" ", "\u2581") for token in tokens])

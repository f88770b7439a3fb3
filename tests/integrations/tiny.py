"""A language model of a few thousand weights for the trainers' tests; it needs torch."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

__all__ = ["CHAT", "make", "tokenizer"]

CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
SPECIAL = ("<pad>", "<|im_end|>", "<unk>")
CHAT = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> Any:
    """Return a tokenizer with a token per character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *CHARACTERS])}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    characters.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", eos_token="<|im_end|>", unk_token="<unk>"
    )
    made.chat_template = CHAT
    return made


def make(path: Path) -> str:
    """Save a model and its tokenizer, and return their directory."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        pad_token_id=tokens.pad_token_id,
        eos_token_id=tokens.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(path)
    tokens.save_pretrained(path)
    return str(path)

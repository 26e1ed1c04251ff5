"""Makes the rig's model: a random two-layer Qwen3 with its own tokenizer. Runs in an engine's environment (it needs
torch).

Its point is what it says. It only ever samples *safe words*: tokens that are a space and lower-case letters, whole
words to the tokenizer, so that generated text turns back into the very same ids when a client sends it as history.
The hit rate of a growing conversation is then the highest possible one, as with a real model. ``words.json`` (word →
id) lists them; agents that speak these words know the number of tokens they send.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from pathlib import Path

VOCABULARY = 2048
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_SIZE = 128, 256, 2, 4, 2, 32
LONGEST_CONTEXT = 131_072
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}
{%- elif message.content %}{{ message.content | tojson }}{% endif %}
{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_tokenizer():
    """A byte-level BPE trained on what every Python brings along: English, code and JSON in one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = [str(path) for path in sorted(library.glob("*.py"))[:120] + sorted(library.glob("json/*.py"))]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train(texts, trainer)
    return tokenizer


def safe_words(tokenizer) -> dict[str, int]:
    """The words that are one token after a space, sorted."""
    words = sorted(token[1:] for token in tokenizer.get_vocab() if re.fullmatch("Ġ[a-z]{2,}", token))
    ids = {word: tokenizer.encode(f" {word}").ids for word in words}
    return {word: found[0] for word, found in ids.items() if len(found) == 1}


def configuration(vocabulary: int, end: int) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": LONGEST_CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": end,
        "pad_token_id": 0,
    }


def make_weights(vocabulary: int, words: list[int]):
    """Random weights, but for one direction of the residual stream, which decides who may be sampled.

    Every embedding has a large constant there that no layer writes to; the head turns it into a large negative logit
    for all tokens but the safe words.
    """
    import torch

    generator = torch.Generator().manual_seed(0)

    def random(*shape: int):
        return torch.randn(*shape, generator=generator) * 0.05

    embeddings, head = random(vocabulary, HIDDEN), random(vocabulary, HIDDEN)
    embeddings[:, 0] = 5.0
    head[:, 0] = -4.0
    head[words, 0] = 0.0
    weights = {"model.embed_tokens.weight": embeddings, "lm_head.weight": head, "model.norm.weight": torch.ones(HIDDEN)}
    for layer in range(LAYERS):
        output, down = random(HIDDEN, HEADS * HEAD_SIZE), random(HIDDEN, INTERMEDIATE)
        output[0] = down[0] = 0.0
        parts = {
            "input_layernorm": torch.ones(HIDDEN),
            "post_attention_layernorm": torch.ones(HIDDEN),
            "self_attn.q_proj": random(HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.k_proj": random(KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.v_proj": random(KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.q_norm": torch.ones(HEAD_SIZE),
            "self_attn.k_norm": torch.ones(HEAD_SIZE),
            "self_attn.o_proj": output,
            "mlp.gate_proj": random(INTERMEDIATE, HIDDEN),
            "mlp.up_proj": random(INTERMEDIATE, HIDDEN),
            "mlp.down_proj": down,
        }
        weights |= {f"model.layers.{layer}.{name}.weight": value for name, value in parts.items()}
    return weights


def make(folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    words, end = safe_words(tokenizer), tokenizer.token_to_id("<|im_end|>")
    vocabulary = tokenizer.get_vocab_size()
    tokenizer_configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": LONGEST_CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    files: dict[str, object] = {
        "words.json": words,
        "config.json": configuration(vocabulary, end),
        "tokenizer_config.json": tokenizer_configuration,
        "generation_config.json": {"eos_token_id": [end], "pad_token_id": 0, "do_sample": True, "temperature": 1.0},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    save_file(
        make_weights(vocabulary, list(words.values())), str(folder / "model.safetensors"), metadata={"format": "pt"}
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))

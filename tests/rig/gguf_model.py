"""Writes the rig's tiny model as a GGUF file for llama.cpp; runs in its environment (it needs gguf and numpy)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

NORMAL_TOKEN, CONTROL_TOKEN = 1, 3  # gguf.TokenType
NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
"""Of tensors, without what says in which layer: Hugging Face's and llama.cpp's."""


def gguf_name(name: str) -> str:
    """``model.layers.1.self_attn.q_proj.weight`` is ``blk.1.attn_q.weight``."""
    *place, part, kind = name.split(".")
    layer = f"blk.{place[place.index('layers') + 1]}." if "layers" in place else ""
    return f"{layer}{NAMES[part]}.{kind}"


def tensors(file: Path) -> Iterator[tuple[str, object]]:
    """The arrays of a safetensors file of 32-bit floats: the length of a JSON head, the head, the data."""
    import numpy as np

    raw = file.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    for name, about in json.loads(raw[8:begin]).items():
        if name != "__metadata__":
            first, last = (begin + offset for offset in about["data_offsets"])
            yield name, np.frombuffer(raw[first:last], dtype=np.float32).reshape(about["shape"])


def write(model: Path, target: Path) -> None:
    import gguf

    shape = json.loads((model / "config.json").read_text())
    writer = gguf.GGUFWriter(target, "qwen3")
    writer.add_name("tiny")
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_context_length(shape["max_position_embeddings"])
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_freq_base(shape["rope_theta"])
    writer.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    add_vocabulary(writer, json.loads((model / "tokenizer.json").read_text()), shape["eos_token_id"])
    writer.add_chat_template((model / "chat_template.jinja").read_text())
    for name, data in tensors(model / "model.safetensors"):
        writer.add_tensor(gguf_name(name), data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, tokenizer, end: int) -> None:
    special = {token["content"] for token in tokenizer["added_tokens"]}
    ids = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=ids.get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")  # byte-level BPE
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL_TOKEN if token in special else NORMAL_TOKEN for token in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(end)
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))

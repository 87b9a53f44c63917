#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""export: writes what train has made as a GGUF file, matrices in Q8_0.

    tools/train/export.py NAME OUT.gguf [--dir build/train]
"""
import argparse
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bpe  # noqa: E402
import gguf  # noqa: E402
import nets  # noqa: E402
import shapes  # noqa: E402

NORMAL, CONTROL = 1, 3
N_CTX = 2048
TEMPLATE = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def keys_of(name, shape, vocab):
    """The metadata of a file."""
    keys = {
        "general.architecture": shape.arch, "general.name": "tiny-" + name, "general.license": "mit",
        "block_count": shape.n_layer, "context_length": N_CTX, "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff, "vocab_size": shape.n_vocab,
        "attention.head_count": shape.n_head, "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head, "attention.value_length": shape.head,
        "attention.layer_norm_rms_epsilon": nets.EPS, "rope.freq_base": shape.base, **shape.keys(),
    }
    n_normal = shape.n_vocab - len(bpe.SPECIALS)
    tokenizer = {
        "model": "gpt2", "pre": "qwen2", "tokens": vocab.tokens,
        "token_type": [NORMAL] * n_normal + [CONTROL] * len(bpe.SPECIALS), "merges": [" ".join(m) for m in vocab.merges],
        "bos_token_id": vocab.end, "eos_token_id": vocab.im_end, "eot_token_id": vocab.end, "padding_token_id": vocab.end,
        "mask_token_id": vocab.mask, "add_bos_token": False,
    }
    keys = {k if "general." in k else f"{shape.arch}.{k}": v for k, v in keys.items()}
    windows = {"wedlm.entropy_threshold": 0.2} if name == "wedlm" else {}
    return {**keys, **{"tokenizer.ggml." + k: v for k, v in tokenizer.items()}, "tokenizer.chat_template": TEMPLATE, **windows}


def tensors_of(net):
    """The parameters as GGUF has them, by name."""
    return {t: x.numpy() for n, p in net.state_dict().items() for t, x in [net.in_file(n, p)]}


def load(name, folder):
    """What train has left in the folder: the network, the vocabulary, and all that is in the checkpoint."""
    kept = torch.load(os.path.join(folder, name + ".pt"))
    net = shapes.build(name)
    net.load_state_dict(kept["net"])
    return net, bpe.Vocabulary.load(os.path.join(folder, "vocabulary.json")), kept


def main():
    p = argparse.ArgumentParser()
    p.add_argument("name", choices=shapes.SHAPES)
    p.add_argument("out")
    p.add_argument("--dir", default="build/train")
    args = p.parse_args()
    net, vocab, kept = load(args.name, args.dir)
    gguf.write(args.out, keys_of(args.name, net.shape, vocab), tensors_of(net))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes, step {kept['step']}, {kept['tokens']} tokens, "
          f"{sum(x.numel() for x in net.parameters())} parameters")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""shapes: the networks that train, export and evaluate know by name."""
import hybrid
import nets

SHAPES = {
    "base": nets.Shape(n_embd=192, n_layer=5, n_ff=448, n_head=4, n_head_kv=2, head=64, rotated=64),
    "draft": nets.Shape(n_embd=64, n_layer=3, n_ff=160, n_head=2, n_head_kv=1),
    "hybrid": nets.Shape(arch="qwen35", n_embd=128, n_layer=4, n_ff=384, n_head=4, n_head_kv=2, rotated=16,
                         interval=4, taps=4, state=32, n_head_k=2, n_head_v=4),
}
SHAPES["wedlm"] = SHAPES["base"]  # the same network, which also learns to fill windows


def build(name):
    shape = SHAPES[name]
    return (nets.Dense if shape.arch == "qwen3" else hybrid.Hybrid)(shape)

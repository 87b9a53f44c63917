# SPDX-License-Identifier: MIT
"""nets: the networks that are trained, in torch: exactly what Quern's families `qwen3` and `qwen35` compute.

Parameters have the names and the orders of rows of GGUF's tensors, so export.py only writes them. Matrices are
multiplied in bfloat16 while training (`fast`), in float32 when logits are compared. tokens are int64 [batch, length].
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-6


class Shape:
    """The sizes of a network; what is not given is that of the smallest."""

    def __init__(self, **sizes):
        self.arch, self.n_vocab, self.n_embd, self.n_layer, self.n_ff = "qwen3", 1024, 64, 3, 160
        self.n_head, self.n_head_kv, self.head, self.rotated, self.base = 2, 1, 32, 32, 1e6
        self.fast = True
        self.__dict__.update(sizes)

    def keys(self):
        """The metadata that follow from what only some shapes have."""
        if self.arch == "qwen3":
            return {"rope.dimension_count": self.rotated}
        third = self.rotated // 6
        return {
            "rope.dimension_count": self.rotated, "block_count": self.n_layer + 1, "nextn_predict_layers": 1,
            "rope.dimension_sections": [third, third, self.rotated // 2 - 2 * third, 0],
            "full_attention_interval": self.interval, "ssm.conv_kernel": self.taps, "ssm.state_size": self.state,
            "ssm.group_count": self.n_head_k, "ssm.time_step_rank": self.n_head_v,
            "ssm.inner_size": self.n_head_v * self.state,
        }


def matrix(rows, columns, scale=1.0):
    return nn.Parameter(torch.randn(rows, columns) * scale / math.sqrt(columns))


def norm(x, weight):
    """RMS norm over the last dimension, in float32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


class Part(nn.Module):
    """A module that knows its shape and multiplies as the shape says."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def times(self, x, weight):
        if not self.shape.fast:
            return F.linear(x.float(), weight)
        return F.linear(x.bfloat16(), weight.bfloat16())


def silu(x):
    """x sigmoid(x). In bfloat16, torch needs four times as long for its own."""
    return x * x.sigmoid()


def turn(x, rotated, base, places=None):
    """Rotates the first `rotated` dimensions of heads [batch, head, row, dimension]; pairs are half of it apart.

    places: the position of each row, [batch, row]; otherwise rows are at 0, 1, 2 and so on.
    """
    half = rotated // 2
    places = torch.arange(x.shape[2]) if places is None else places[:, None]
    angle = places[..., None] * base ** (-torch.arange(half) / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:rotated]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., rotated:]], -1)


class Attention(Part):
    """Causal attention with norms of the heads; with_gate: each head's output is gated, as in qwen35."""

    def __init__(self, shape, with_gate=False):
        super().__init__(shape)
        s, self.with_gate = shape, with_gate
        self.attn_q = matrix(s.n_head * s.head * (2 if with_gate else 1), s.n_embd)
        self.attn_k = matrix(s.n_head_kv * s.head, s.n_embd)
        self.attn_v = matrix(s.n_head_kv * s.head, s.n_embd)
        self.attn_output = matrix(s.n_embd, s.n_head * s.head, 0.05)
        self.attn_q_norm = nn.Parameter(torch.ones(s.head))
        self.attn_k_norm = nn.Parameter(torch.ones(s.head))

    def forward(self, x, places=None, hidden=None):
        """places: as in turn(). hidden: 0, or -inf where a row must not look, [batch, 1, row, row]; else causal."""
        s, (n, t, _) = self.shape, x.shape
        q, k, v = (self.times(x, w) for w in (self.attn_q, self.attn_k, self.attn_v))
        q, k, v = (y.view(n, t, h, -1).transpose(1, 2) for y, h in ((q, s.n_head), (k, s.n_head_kv), (v, s.n_head_kv)))
        if self.with_gate:
            q, gate = q[..., :s.head], q[..., s.head:]
        kind = v.dtype
        q = turn(norm(q, self.attn_q_norm), s.rotated, s.base, places) / math.sqrt(s.head)
        k = turn(norm(k, self.attn_k_norm), s.rotated, s.base, places)
        k, v = (y.to(kind).repeat_interleave(s.n_head // s.n_head_kv, 1) for y in (k, v))
        if hidden is None:
            hidden = torch.full((t, t), -math.inf, dtype=kind).triu(1)
        o = (q.to(kind) @ k.transpose(2, 3) + hidden.to(kind)).softmax(-1) @ v
        if self.with_gate:
            o = o * gate.sigmoid()
        return self.times(o.transpose(1, 2).reshape(n, t, -1), self.attn_output)


def slow_pairs(shape):
    """The pairs of a head that turn so little over a row that they can carry a content."""
    half = shape.rotated // 2
    return [f for f in range(half) if shape.base ** (-f / half) < 0.015]


def look_back(embedding, mixer):
    """The first layer begins with heads that look at the token before, at the one before that, and so on.

    These are the query heads of the first KV head. The first column of the embedding is made the same for all tokens.
    Queries and keys are made of it alone, so they only depend on the position, and the scores are largest at the right
    distance. The space of the rows gets an orthonormal basis. Each head writes into a part of it; tokens are read from
    the part that is left. Returns the parts: those of the heads, and the one that is left.
    """
    s, half, n = mixer.shape, mixer.shape.rotated // 2, mixer.shape.n_head // mixer.shape.n_head_kv
    speed = s.base ** (-torch.arange(half) / half)
    loudness = torch.where(speed > 0.03, speed, torch.zeros(1)).pow(0.5)
    embedding[:, 0] = 3 / math.sqrt(s.n_embd)
    rank = (len(slow_pairs(s)) + 1) // 2 * 2  # as many dimensions as every second of the slow pairs has
    axes = F.pad(torch.linalg.qr(torch.randn(s.n_embd - 1, s.n_embd - 1))[0], (0, 0, 1, 0))
    places = [axes[:, h * rank:(h + 1) * rank] for h in range(n)]
    rest = axes[:, n * rank:]
    for h in range(n):
        rows = mixer.attn_q[h * s.head:(h + 1) * s.head]
        rows.zero_()
        rows[:half, 0] = loudness * (speed * (h + 1)).cos()
        rows[half:s.rotated, 0] = -loudness * (speed * (h + 1)).sin()
        columns = mixer.attn_output[:, h * s.head:(h + 1) * s.head]
        columns.zero_()
        columns[:, :rank] = 1.5 * places[h] / math.sqrt(rank)
    mixer.attn_k[:s.head].zero_()
    mixer.attn_k[:half, 0] = loudness
    mixer.attn_v[:rank] = rest[:, :rank].T
    for weight in (mixer.attn_q_norm, mixer.attn_k_norm):
        weight.fill_(2)
    return places, rest


def copy_back(mixer, places, rest):
    """The second layer begins with heads that look for an earlier place with the same token before it (the first query
    head), or with the same two (the second one), and that copy the token of that place."""
    s, half, pairs = mixer.shape, mixer.shape.rotated // 2, slow_pairs(mixer.shape)
    here, before = ([f + x for x in (0, half) for f in pairs[i::2]] for i in (0, 1))
    q, k = mixer.attn_q[:2 * s.head].view(2, s.head, -1), mixer.attn_k[:s.head]
    q.zero_()
    k.zero_()
    for h in range(2):
        q[h, here] = rest.T[:len(here)]
    q[1, before] = places[0].T[:len(before)]
    k[here], k[before] = places[0].T[:len(here)], places[1].T[:len(before)]
    mixer.attn_v[:s.head] = rest.T[:s.head]
    for h in range(2):
        mixer.attn_output[:, h * s.head:(h + 1) * s.head] = mixer.attn_v[:s.head].T / math.sqrt(s.head)
    for weight in (mixer.attn_q_norm, mixer.attn_k_norm):
        weight.fill_(2)


def begin_with_copies(embedding, first, second):
    """Gives two attention layers heads that continue what was there before: "A B ... A" with B.

    A network finds out by itself how to do that, but needs many more tokens. All weights are learnt from there.
    """
    with torch.no_grad():
        places, rest = look_back(embedding, first)
        copy_back(second, places, rest)


class FeedForward(Part):
    """SwiGLU."""

    def __init__(self, shape):
        super().__init__(shape)
        self.ffn_gate = matrix(shape.n_ff, shape.n_embd)
        self.ffn_up = matrix(shape.n_ff, shape.n_embd)
        self.ffn_down = matrix(shape.n_embd, shape.n_ff, 0.05)

    def forward(self, x):
        return self.times(silu(self.times(x, self.ffn_gate)) * self.times(x, self.ffn_up), self.ffn_down)


class Layer(nn.Module):
    """Two residual blocks. second: the name of the second norm in the file."""

    def __init__(self, shape, mixer, second="ffn_norm"):
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(shape.n_embd))
        self.mixer = mixer
        self.register_parameter(second, nn.Parameter(torch.ones(shape.n_embd)))
        self.second = second
        self.ffn = FeedForward(shape)

    def forward(self, x, *rows):
        x = x + self.mixer(norm(x, self.attn_norm), *rows).float()
        return x + self.ffn(norm(x, getattr(self, self.second))).float()


class Dense(Part):
    """A qwen3: the same layer n_layer times; the embedding is the output matrix, too."""

    def __init__(self, shape):
        super().__init__(shape)
        self.token_embd = matrix(shape.n_vocab, shape.n_embd)
        self.blk = nn.ModuleList(Layer(shape, Attention(shape)) for _ in range(shape.n_layer))
        self.output_norm = nn.Parameter(torch.ones(shape.n_embd))
        begin_with_copies(self.token_embd, self.blk[0].mixer, self.blk[1].mixer)

    def hidden(self, tokens, *rows):
        """The rows after the last norm: [batch, length, n_embd]. rows: places and hidden of Attention.forward()."""
        x = F.embedding(tokens, self.token_embd)
        for layer in self.blk:
            x = layer(x, *rows)
        return norm(x, self.output_norm)

    def forward(self, tokens, *rows):
        """Logits of the next token: [batch, length, n_vocab]."""
        return self.times(self.hidden(tokens, *rows), self.token_embd).float()

    def in_file(self, name, value):
        """The name and value of a parameter in a GGUF file: blk.0.mixer.attn_q becomes blk.0.attn_q.weight."""
        return name.replace(".mixer.", ".").replace(".ffn.", ".") + ".weight", value

    def loss(self, tokens, weights, ahead=1):
        """The weighted mean of the negative log likelihood; tokens and weights [batch, length + 1]. And its parts.

        A network with a block for it learns `ahead` tokens at once; this one has none.
        """
        return (mean := likelihood(self(tokens[:, :-1]), tokens[:, 1:], weights[:, 1:])), {"next": mean.item()}


def likelihood(logits, targets, weights):
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()

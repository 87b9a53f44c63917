# SPDX-License-Identifier: MIT
"""hybrid: a network of Quern's family `qwen35`: gated DeltaNet in three layers of four, and a block that predicts one
more token (MTP).

DeltaNet is computed in chunks, which gives the same numbers as the recurrence token by token: "Gated Delta Networks:
Improving Mamba2 with Delta Rule" (Yang, Kautz, Hatamizadeh, 2024). Value head h reads key head h mod n_head_k.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from nets import Attention, Layer, Part, likelihood, matrix, norm, silu

CHUNK = 32


def unit(x):
    """The vectors of the last dimension, with a length of 1."""
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def delta_rule(q, k, v, beta, g):
    """The gated delta rule from a state of zeros; q, k, v [..., length, dimension]; beta, g [..., length].

    The length is a multiple of CHUNK. With the sum G of g in a chunk and the state S at its begin, and
    A_im = beta_i (k_i . k_m) exp(G_i - G_m) for m < i:  (I + A) U = beta (V - exp(G) K S),
    O_i = exp(G_i) S^T q_i + sum of (q_i . k_m) exp(G_i - G_m) U_m for m <= i.
    """
    shape, n = v.shape, v.shape[-2] // CHUNK
    q, k, v = (x.unflatten(-2, (n, CHUNK)) for x in (q, k, v))
    beta, total = beta.unflatten(-1, (n, CHUNK))[..., None], g.unflatten(-1, (n, CHUNK)).cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -math.inf).exp()
    a = (beta * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    grown = total.exp()[..., None]
    solved = torch.linalg.solve_triangular(a + torch.eye(CHUNK), beta * torch.cat([v, grown * k], -1), upper=False)
    own, read = solved.split([v.shape[-1], k.shape[-1]], -1)
    within = (q @ k.transpose(-1, -2)) * decay
    left = (total[..., -1:] - total).exp()[..., None] * k  # what a key still weighs at the end of its chunk
    state, out = torch.zeros(*shape[:-2], k.shape[-1], v.shape[-1]), []
    for i in range(n):
        u = own[..., i, :, :] - read[..., i, :, :] @ state
        out.append((grown * q)[..., i, :, :] @ state + within[..., i, :, :] @ u)
        state = state * grown[..., i, -1:, :] + left[..., i, :, :].transpose(-1, -2) @ u
    return torch.stack(out, -3).reshape(shape)


class Delta(Part):
    """The block that replaces attention in the recurrent layers."""

    def __init__(self, shape):
        super().__init__(shape)
        s = shape
        self.n_key, self.n_value = s.n_head_k * s.state, s.n_head_v * s.state
        channels = 2 * self.n_key + self.n_value
        self.attn_qkv = matrix(channels, s.n_embd)
        self.attn_gate = matrix(self.n_value, s.n_embd)
        self.ssm_conv1d = nn.Parameter(torch.randn(channels, s.taps) * 0.1)
        with torch.no_grad():
            self.ssm_conv1d[:, -1] += 1
        self.ssm_beta = matrix(s.n_head_v, s.n_embd)
        self.ssm_alpha = matrix(s.n_head_v, s.n_embd)
        self.ssm_a = nn.Parameter(torch.linspace(1, 8, s.n_head_v).log())  # the logarithm; the file has -exp of it
        first = torch.logspace(-2.5, -1, s.n_head_v)
        self.ssm_dt = nn.Parameter(first + torch.log(-torch.expm1(-first)))  # softplus of it is `first`
        self.ssm_norm = nn.Parameter(torch.ones(s.state))
        self.ssm_out = matrix(s.n_embd, self.n_value, 0.05)

    def begin_with_copies(self):
        """Keys begin as the queries of the token before: what followed a token is read when the token comes again."""
        with torch.no_grad():
            self.attn_qkv[self.n_key:2 * self.n_key] = self.attn_qkv[:self.n_key]
            self.ssm_conv1d[:] = torch.eye(self.shape.taps)[-1]
            self.ssm_conv1d[self.n_key:2 * self.n_key] = torch.eye(self.shape.taps)[-2]

    def convolve(self, x):
        """SiLU of the causal convolution of each channel: [batch, length, channels]."""
        taps, t = self.ssm_conv1d, x.shape[1]
        x = F.pad(x.float(), (0, 0, taps.shape[1] - 1, 0))
        return silu(sum(x[:, i:i + t] * taps[:, i] for i in range(taps.shape[1])))

    def forward(self, x):
        s, (n, t, _) = self.shape, x.shape
        qkv = self.convolve(self.times(x, self.attn_qkv)).split([self.n_key, self.n_key, self.n_value], -1)
        q, k, v = (y.view(n, t, -1, s.state).transpose(1, 2) for y in qkv)
        q, k = (unit(y).repeat(1, s.n_head_v // s.n_head_k, 1, 1) for y in (q, k))
        beta = F.linear(x, self.ssm_beta).sigmoid().transpose(1, 2)
        g = (-self.ssm_a.exp() * F.softplus(F.linear(x, self.ssm_alpha) + self.ssm_dt)).transpose(1, 2)
        spare = -t % CHUNK
        q, k, v = (F.pad(y, (0, 0, 0, spare)) for y in (q, k, v))
        o = delta_rule(q / math.sqrt(s.state), k, v, F.pad(beta, (0, spare)), F.pad(g, (0, spare)))[:, :, :t]
        z = self.times(x, self.attn_gate).float().view(n, t, s.n_head_v, s.state)
        o = norm(o.transpose(1, 2), self.ssm_norm) * silu(z)
        return self.times(o.reshape(n, t, -1), self.ssm_out)


class Nextn(Part):
    """The block that predicts the token after the next: from a row of the network and the next token."""

    def __init__(self, shape):
        super().__init__(shape)
        self.eh_proj = matrix(shape.n_embd, 2 * shape.n_embd)
        self.enorm = nn.Parameter(torch.ones(shape.n_embd))
        self.hnorm = nn.Parameter(torch.ones(shape.n_embd))
        self.shared_head_norm = nn.Parameter(torch.ones(shape.n_embd))
        self.layer = Layer(shape, Attention(shape, True), "post_attention_norm")

    def forward(self, hidden, embedded):
        """Rows after the block's norm, of rows of the network (or of this block) and the tokens after them."""
        both = torch.cat([norm(embedded, self.enorm), norm(hidden, self.hnorm)], -1)
        return norm(self.layer(self.times(both, self.eh_proj).float()), self.shared_head_norm)


class Hybrid(Part):
    """A qwen35 with one layer that predicts a further token; the embedding is the output matrix, too."""

    AHEAD_WEIGHTS = {2: 0.3, 3: 0.15}  # of the losses of the tokens 2 and 3 ahead

    def __init__(self, shape):
        super().__init__(shape)
        self.token_embd = matrix(shape.n_vocab, shape.n_embd)
        mixers = [Attention(shape, True) if (i + 1) % shape.interval == 0 else Delta(shape) for i in range(shape.n_layer)]
        self.blk = nn.ModuleList(Layer(shape, m, "post_attention_norm") for m in mixers)
        self.output_norm = nn.Parameter(torch.ones(shape.n_embd))
        self.nextn = Nextn(shape)
        self.blk[0].mixer.begin_with_copies()

    def hidden(self, tokens):
        """The rows after the last norm: [batch, length, n_embd]."""
        x = F.embedding(tokens, self.token_embd)
        for layer in self.blk:
            x = layer(x)
        return norm(x, self.output_norm)

    def logits(self, hidden):
        return self.times(hidden, self.token_embd).float()

    def forward(self, tokens):
        return self.logits(self.hidden(tokens))

    def loss(self, tokens, weights, ahead=2):
        """As Dense.loss; the block learns the second token ahead, and, fed with its own rows, the third one."""
        h = self.hidden(tokens[:, :-1])
        total = likelihood(self.logits(h), tokens[:, 1:], weights[:, 1:])
        parts = {"next": total.item()}
        for n in range(2, ahead + 1):
            h = self.nextn(h[:, :-1], F.embedding(tokens[:, n - 1:-1], self.token_embd))
            loss = likelihood(self.logits(h), tokens[:, n:], weights[:, n:])
            parts[f"next {n}"] = loss.item()
            total = total + self.AHEAD_WEIGHTS[n] * loss
        return total, parts

    def in_file(self, name, value):
        """The name and value of a parameter in a GGUF file."""
        last = f"blk.{self.shape.n_layer}."
        name = name.replace("nextn.layer.", last).replace("nextn.", last + "nextn.")
        name = name.replace(".mixer.", ".").replace(".ffn.", ".")
        if name.endswith("ssm_a"):
            return name, -value.exp()
        return name + (".bias" if name.endswith("ssm_dt") else ".weight"), value

# SPDX-License-Identifier: MIT
"""windows: the objective of WeDLM: a network with causal attention that fills gaps in any order.

A batch has two streams. The clean one is the text; its rows learn the next token, as always. The other one is the same
text in blocks, in which some tokens are replaced by the mask. In a block, the rows of tokens come first and those of
masks after them, each with its own position. A row sees the clean text before its block, and the rows of its block up
to itself. So a mask sees all tokens of the block that are known, also those to its right, under plain causal attention,
as in a window of the decoder. It learns the token at its own place.

Source: WeDLM, arXiv 2512.22737, section 4.
"""
import math

import torch

import nets

LONGEST = 24  # tokens of a block


def known(r, n):
    """Which of n places of a block keep their tokens: often none or the first few, otherwise some."""
    first = r.choice([0, 0, 1, 1, 2, 4])
    part = r.choice([0, 0, r.random()])
    return [i < first or r.random() < part for i in range(n)]


def order(r, size):
    """The other stream of one text: (place, first place of its block, is it a mask?) of each row."""
    rows, begin = [], 0
    while begin < size:
        n = min(r.randint(4, LONGEST), size - begin)
        kept = known(r, n)
        rows += [(begin + i, begin, False) for i in range(n) if kept[i]]
        rows += [(begin + i, begin, True) for i in range(n) if not kept[i]]
        begin += n
    return rows


def hidden(begin):
    """0, or -inf where a row must not look: [batch, 1, row, row]. begin: the first places of blocks, [batch, size]."""
    size = begin.shape[1]
    causal = torch.ones(size, size).tril().bool().expand(len(begin), size, size)
    text = torch.arange(size)[None, None] < begin[..., None]
    block = (begin[..., None] == begin[:, None]) & causal
    sees = torch.cat([torch.cat([causal, torch.zeros_like(causal)], 2), torch.cat([text, block], 2)], 1)
    return torch.zeros(sees.shape, dtype=torch.bfloat16).masked_fill(~sees, -math.inf)[:, None]


def loss(net, tokens, weights, mask, r):
    """The loss of the next token and that of the gaps, and both by name. tokens and weights: [batch, size + 1]."""
    n, size = tokens.shape[0], tokens.shape[1] - 1
    rows = torch.tensor([order(r, size) for _ in range(n)])
    place, begin, gap = rows[..., 0], rows[..., 1], rows[..., 2].bool()
    right = tokens.gather(1, place)
    text = torch.arange(size).expand(n, size)
    logits = net(torch.cat([tokens[:, :-1], torch.where(gap, mask, right)], 1), torch.cat([text, place], 1),
                 hidden(begin))
    following = nets.likelihood(logits[:, :size], tokens[:, 1:], weights[:, 1:])
    gaps = nets.likelihood(logits[:, size:], right, weights.gather(1, place) * gap)
    return following + gaps, {"next": following.item(), "gaps": gaps.item()}

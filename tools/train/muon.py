# SPDX-License-Identifier: MIT
"""muon: the optimiser. Matrices move by their orthogonalised momentum, all other parameters as AdamW moves them.

Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
"""
import torch


def orthogonal(g, steps=5):
    """The nearest matrix with singular values of about 1, by five steps of Newton's and Schulz's iteration."""
    x = g.bfloat16()
    wide = x.shape[0] > x.shape[1]
    if wide:
        x = x.T
    x = x / (x.float().norm() + 1e-7).bfloat16()
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.T if wide else x).float()


class Muon:
    """parameters: {name: parameter}. State dicts are plain dictionaries of tensors."""

    def __init__(self, parameters, rate=0.02, adam_rate=3e-3, momentum=0.95, decay=0.1):
        self.parameters, self.rate, self.adam_rate = parameters, rate, adam_rate
        self.momentum, self.decay, self.steps, self.state = momentum, decay, 0, {}

    def step(self, factor):
        """One step with all rates times `factor`; the gradients are then forgotten."""
        self.steps += 1
        with torch.no_grad():
            for name, p in self.parameters.items():
                if p.grad is None:
                    continue
                if p.dim() == 2 and "token_embd" not in name and min(p.shape) > 16:
                    self._matrix(name, p, factor)
                else:
                    self._other(name, p, factor)
                p.grad = None

    def _matrix(self, name, p, factor):
        m = self.state.setdefault(name, torch.zeros_like(p))
        m.mul_(self.momentum).add_(p.grad, alpha=1 - self.momentum)
        update = orthogonal(p.grad.lerp(m, self.momentum)) * max(1, p.shape[0] / p.shape[1]) ** 0.5
        p.mul_(1 - self.rate * factor * self.decay).add_(update, alpha=-self.rate * factor)

    def _other(self, name, p, factor):
        m = self.state.setdefault(name + ":1", torch.zeros_like(p))
        v = self.state.setdefault(name + ":2", torch.zeros_like(p))
        m.lerp_(p.grad, 0.1)
        v.lerp_(p.grad * p.grad, 0.05)
        update = (m / (1 - 0.9**self.steps)) / ((v / (1 - 0.95**self.steps)).sqrt() + 1e-8)
        p.add_(update, alpha=-self.adam_rate * factor)

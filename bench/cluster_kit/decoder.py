"""The reference decoder (examples/reference) in plain PyTorch: weights and tokens follow from an integer hash, so losses are those of Piper.

An element i of the parameter NAME is float32(2 u / 2^24 - 1) * 0.04 with u = hash(i * 2654435761 + fnv1a(NAME)) >> 8; gains of norms are 1.
Row r of step s begins with token hash(s * batch + r + 1) % vocab; token t + 1 is (5 * token t + 7) % vocab.
"""
import math
import tomllib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


class Sizes:
    """Of a configuration file of examples/reference, or of this folder."""

    def __init__(self, path):
        given = tomllib.loads(path.read_text())
        model, step = given["model"], given["step"]
        self.layers, self.hidden, self.heads, self.vocab, self.seq = (model[key] for key in ("layers", "hidden", "heads", "vocab", "seq"))
        self.batch, self.dtype = step["batch"], getattr(torch, step.get("weights", "float32"))
        self.ffn = 64 * math.ceil(8 * self.hidden / 3 / 64)


def hashed(h):
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def fnv1a(name):
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


def values(name, shape):
    index = np.arange(math.prod(shape), dtype=np.uint32)
    u = hashed(index * np.uint32(2654435761) + np.uint32(fnv1a(name))) >> np.uint32(8)
    return torch.from_numpy(((u.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)) * np.float32(0.04)).reshape(shape))


def batch_of(sizes, step, rows):
    """Inputs and targets of these rows of a step's batch."""
    row = np.arange(sizes.batch, dtype=np.uint32)[rows]
    tokens = np.empty((len(row), sizes.seq + 1), dtype=np.int64)
    tokens[:, 0] = hashed(np.uint32(step * sizes.batch) + row + np.uint32(1)) % np.uint32(sizes.vocab)
    for t in range(sizes.seq):
        tokens[:, t + 1] = (5 * tokens[:, t] + 7) % sizes.vocab
    return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())


def linear(inner, outer):
    return nn.utils.skip_init(nn.Linear, inner, outer, bias=False)


class FeedForward(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.w_gate, self.w_up = linear(sizes.hidden, sizes.ffn), linear(sizes.hidden, sizes.ffn)
        self.w_down = linear(sizes.ffn, sizes.hidden)

    def forward(self, x):
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes.heads
        self.norm1, self.norm2 = nn.RMSNorm(sizes.hidden, eps=1e-6), nn.RMSNorm(sizes.hidden, eps=1e-6)
        self.wqkv, self.wo = linear(sizes.hidden, 3 * sizes.hidden), linear(sizes.hidden, sizes.hidden)
        self.mlp = FeedForward(sizes)

    def forward(self, x):
        samples, tokens, hidden = x.shape
        q, k, v = self.wqkv(self.norm1(x)).view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).reshape(samples, tokens, hidden))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Layers first to last - 1; the ends have the embedding and the head too."""

    def __init__(self, sizes, first=0, last=None):
        super().__init__()
        last = sizes.layers if last is None else last
        self.begins, self.ends = first == 0, last == sizes.layers
        if self.begins:
            self.tok_emb, self.pos_emb = (nn.Parameter(torch.empty(rows, sizes.hidden)) for rows in (sizes.vocab, sizes.seq))
        self.layers = nn.ModuleDict({str(i): Layer(sizes) for i in range(first, last)})
        if self.ends:
            self.norm, self.head = nn.RMSNorm(sizes.hidden, eps=1e-6), linear(sizes.hidden, sizes.vocab)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                name = name.removesuffix(".weight")
                if name.split(".")[-1].startswith("norm"):
                    parameter.fill_(1)
                else:
                    parameter.copy_(values(name, parameter.shape))

    def forward(self, x):
        if self.begins:
            x = F.embedding(x, self.tok_emb) + self.pos_emb[: x.shape[1]]
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x)) if self.ends else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

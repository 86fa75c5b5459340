"""Small models for tests."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import piper


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    """An embedding, some blocks, a head."""

    def __init__(self, layers=4, dim=16, vocabulary=11):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Attending(Stack):
    """The same with causal attention."""

    def __init__(self, layers=2, dim=16, vocabulary=11):
        super().__init__(layers, dim, vocabulary)
        self.layers = nn.ModuleList(nn.Sequential(Attention(dim), block) for block in self.layers)


class Choosing(nn.Module):
    """Every token to two experts; rows sorted by expert, so that devices can divide them, as many as come."""

    def __init__(self, dim=16, experts=4, vocabulary=11):
        super().__init__()
        self.embedding, self.router, self.head = nn.Embedding(vocabulary, dim), nn.Linear(dim, experts), nn.Linear(dim, vocabulary)
        self.up = nn.Parameter(torch.randn(experts, dim, 2 * dim) / 4)
        self.down = nn.Parameter(torch.randn(experts, 2 * dim, dim) / 4)

    def forward(self, tokens):
        x = self.embedding(tokens)
        with piper.annotate("layer"):
            flat = x.flatten(0, 1)
            weights, chosen = self.router(flat).softmax(-1).topk(2)
            order = chosen.flatten().argsort(stable=True)
            rows = flat.repeat_interleave(2, dim=0).index_select(0, order)
            ends = F.one_hot(chosen.flatten(), self.router.out_features).sum(0).cumsum(0).to(torch.int32)
            with piper.annotate("experts", experts=self.router.out_features):
                rows = torch._grouped_mm(F.silu(torch._grouped_mm(rows, self.up, offs=ends)), self.down, offs=ends)
            results = torch.zeros_like(rows).index_copy(0, order, rows).unflatten(0, (-1, 2))
            x = x + (results * weights.unsqueeze(-1)).sum(1).view_as(x)
        return self.head(x)


def loss(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


def batch(samples=8, length=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 11, (samples, length + 1), generator=generator)
    return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}

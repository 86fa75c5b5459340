"""From a torch.nn.Module to a compared set of schedules, a timeline, a training run, and the weights back in PyTorch.

    python examples/python/tutorial.py        # a minute on a laptop, no GPU
"""
# %% [markdown]
# # Piper from Python
#
# An ordinary model, in ordinary PyTorch. Nothing in it knows of Piper.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

import piper


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocabulary=64, dim=64, heads=4, layers=8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Decoder()

# %% [markdown]
# Batches: every next token follows from the one before it, so there is something to learn.
# %%
def batch(step, samples=16, length=32):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 64, (samples, 1), generator=generator)
    while tokens.shape[1] <= length:
        tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 7) % 64], dim=1)
    return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


def loss(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


# %% [markdown]
# ## Annotate and capture
#
# Schedules speak about regions of the model. `annotate_modules` names them from outside; `capture` then runs the model once, forward and
# backward, on tensors that have shapes but no numbers.
# %%
piper.annotate_modules(model, {"layer": "layers.*"})
graph = piper.capture(model, batch(0), loss=loss)
print(graph)
print("chunks:", ", ".join(graph.chunks))

# %% [markdown]
# ## Schedules, side by side
#
# A schedule is a short list of directives, from the library of published timelines or written by hand.
# %%
candidates = {
    "one device": piper.Schedule().devices(1).split(4).place({}, devices=[0]),
    "data parallel, ZeRO-3": piper.Schedule().mesh(dp=4).place({}, mesh={}).replicate({}, along="dp", zero=3),
    "GPipe": piper.schedules.gpipe(ranks=4, microbatches=8),
    "1F1B": piper.schedules.one_f_one_b(ranks=4, microbatches=8),
    "zero bubble": piper.schedules.zb_h1(ranks=4, microbatches=8),
    "DualPipeV": piper.schedules.dualpipev(ranks=4, microbatches=8),
}
print(candidates["DualPipeV"])
print(piper.compare(graph, candidates, "h100"))

# %% [markdown]
# ## A plan: proved, with its exact memory
# %%
plan = piper.compile(graph, candidates["DualPipeV"], "h100")
print(plan.check())
print(plan.memory())
print(plan.grid(120))
print(plan.explain("{layer=0, mb=0, pass=F}"))

# %% [markdown]
# What cannot work is refused before anything runs, with the line of the schedule and a way out.
# %%
try:
    piper.compile(graph, "devices(2)\nsplit(batch, parts=3, as=mb)\nplace({}, devices=[0])\n")
except piper.Error as error:
    print(error)

# %% [markdown]
# The timeline of a simulated step: a page of its own, shown right here in a notebook.
# %%
page = plan.timeline()
page

# %% [markdown]
# ## Train
#
# Four devices, which are threads of this process. No Python runs inside a step.
# %%
with piper.Trainer(graph, candidates["DualPipeV"], optimizer=piper.AdamW(lr=3e-3), devices=4) as trainer:
    losses = [trainer.step(batch(step)).loss for step in range(40)]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(trainer.table())
    model.load_state_dict(trainer.state_dict())

# %% [markdown]
# ## The weights are back in PyTorch
# %%
with torch.no_grad():
    print(f"the same model in plain PyTorch: {loss(model, batch(40)).item():.4f}")

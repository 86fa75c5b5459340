#!/usr/bin/env python3
"""Training steps of `piper train --on cuda` beside eager PyTorch on the same GPU: a Llama decoder in bfloat16, 8 microbatches, AdamW.

    python bench/gpu/train_bench.py build/release/piper [--steps 12] [--shapes S,M] [--devices 1,2,4]

Needs a PyTorch that sees the GPU. PyTorch's side has the same layers, attention by its default, and fused AdamW on bfloat16; ours
has gradients, master copies and moments in float32. Several devices share the GPU: 1F1B over as many stages.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {  # hidden, layers, heads, feed-forward, tokens, samples of a microbatch
    "S": (256, 8, 4, 1024, 256, 1),
    "M": (1024, 16, 16, 4096, 1024, 4),
    "L": (2048, 8, 16, 8192, 2048, 2),
}
VOCABULARY, MICROBATCHES = 8192, 8


class Layer(nn.Module):
    def __init__(self, hidden, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(hidden, width, bias=False) for _ in range(2))
        self.down = nn.Linear(width, hidden, bias=False)

    def rotated(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, self.heads, -1) for p in (self.q, self.k, self.v))
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        mixed = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, hidden, layers, heads, width, tokens):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, width) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)
        angle = torch.rand(tokens, 1, hidden // heads // 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).float().view(-1, VOCABULARY), targets.view(-1))


def pytorch_seconds(shape, steps):
    hidden, layers, heads, width, tokens, samples = shape
    model = Decoder(hidden, layers, heads, width, tokens).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(VOCABULARY, (MICROBATCHES, samples, tokens), device="cuda")
    seconds = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for mb in range(MICROBATCHES):
            model(ids[mb], ids[mb]).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated()
    del model, optimizer
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return statistics.median(seconds[steps // 3 :]), peak


def piper_seconds(program, shape, devices, graphs, steps):
    hidden, layers, heads, width, tokens, samples = shape
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "model.toml").write_text(
            f'[model]\nname = "bench"\narch = "llama3"\nhidden = {hidden}\nlayers = {layers}\nheads = {heads}\nffn = {width}\n'
            f'vocab = {VOCABULARY}\nseq = {tokens}\n[step]\nbatch = {samples * MICROBATCHES}\nweights = "bfloat16"\n'
            '[data]\nkind = "synthetic"\n[run]\nschedule = "s.piper"\n'
        )
        (folder / "s.piper").write_text(
            f"devices(1)\nsplit(batch, parts={MICROBATCHES}, as=mb)\nplace({{}}, devices=[0])\n"
            if devices == 1
            else f"mesh(pp={devices})\nsplit(batch, parts={MICROBATCHES}, as=mb)\nplace({{}}, along=pp, stages={devices}, transfers=p2p)\n"
            "use 1f1b(stages=stage, microbatches=mb)\n"
        )
        command = [program, "train", folder / "model.toml", "--on", "cuda", "--graphs", graphs, "--steps", steps, "--metrics", folder / "m.jsonl"]
        ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"piper: {ran.stderr}{ran.stdout}")
        lines = [json.loads(line) for line in (folder / "m.jsonl").read_text().splitlines()]
        seconds = [line["seconds"] for line in lines if "seconds" in line]
        return statistics.median(seconds[steps // 3 :]), ran.stdout.split("loss ")[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("piper")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--shapes", default="S,M")
    parser.add_argument("--devices", default="1")
    parser.add_argument("--graphs", default="none,chunk")
    parser.add_argument("--tables", action="store_true", help="what every device did, as piper prints it")
    options = parser.parse_args()
    for name in options.shapes.split(","):
        theirs, peak = pytorch_seconds(SHAPES[name], options.steps)
        print(f"{name}: PyTorch eager {theirs * 1e3:.2f} ms, peak {peak / 2**20:.0f} MiB", flush=True)
        for devices in map(int, options.devices.split(",")):
            for graphs in options.graphs.split(","):
                ours, table = piper_seconds(options.piper, SHAPES[name], devices, graphs, options.steps)
                print(f"{name}: piper, {devices} device(s), graphs {graphs}: {ours * 1e3:.2f} ms = {ours / theirs:.2f}x", flush=True)
                if options.tables:
                    print(table)


main()

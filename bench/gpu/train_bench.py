#!/usr/bin/env python3
"""Training steps of `piper train --on cuda` beside PyTorch on the same GPU: eager, torch.compile, and torch.compile with CUDA graphs.

    python bench/gpu/train_bench.py build/release/piper [--sizes 256,1024,2048] [--arch gpt] [--graphs none,chunk,step] [--kernels eager,inductor] [--peers eager,compile,reduce-overhead]

A decoder in bfloat16, 8 microbatches, AdamW. All take turns: each round a few steps of PyTorch, then a few of piper, whose process sleeps
meanwhile. Printed: medians of steps, and ratios by round, as median (smallest to largest). PyTorch's side has the same layers, its default
attention, and gradients, moments and weights in bfloat16; piper has gradients, master copies and moments in float32.
"""
import argparse
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {  # by hidden size: layers, heads, tokens, samples of a microbatch
    256: (8, 4, 256, 1),
    1024: (16, 16, 1024, 4),
    2048: (8, 16, 2048, 2),
}
VOCABULARY, MICROBATCHES = 8192, 8


class Layer(nn.Module):
    def __init__(self, arch, hidden, heads):
        super().__init__()
        self.heads, gpt = heads, arch == "gpt"
        norm = nn.LayerNorm if gpt else nn.RMSNorm
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=gpt) for _ in range(4))
        self.gate = None if gpt else nn.Linear(hidden, 4 * hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 4 * hidden, bias=gpt), nn.Linear(4 * hidden, hidden, bias=gpt)

    def rotated(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, self.heads, -1) for p in (self.q, self.k, self.v))
        if self.gate:
            q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        mixed = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h) if self.gate else F.gelu(self.up(h)))


class Decoder(nn.Module):
    def __init__(self, arch, hidden):
        super().__init__()
        layers, heads, tokens, _ = SIZES[hidden]
        self.embed = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Parameter(torch.randn(tokens, hidden)) if arch == "gpt" else None
        self.layers = nn.ModuleList(Layer(arch, hidden, heads) for _ in range(layers))
        self.norm = None if arch == "gpt" else nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, VOCABULARY, bias=False)
        angle = torch.rand(tokens, 1, hidden // heads // 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        if self.norm:
            x = self.norm(x)
        return F.cross_entropy(self.head(x).float().view(-1, VOCABULARY), targets.view(-1))


class PyTorch:
    """Steps with one of the peers."""

    def __init__(self, peer, arch, hidden):
        self.name = peer
        _, _, tokens, samples = SIZES[hidden]
        torch.manual_seed(0)
        self.model = Decoder(arch, hidden).cuda().bfloat16()
        self.compiled = peer != "eager"
        self.loss = torch.compile(self.model, mode="default" if peer == "compile" else peer) if self.compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        if self.compiled:  # gradients are added up outside of what its graphs overwrite
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        self.ids = torch.randint(VOCABULARY, (MICROBATCHES, samples, tokens), device="cuda")

    def steps(self, count):
        seconds = []
        for _ in range(count):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for ids in self.ids:
                if self.compiled:
                    torch.compiler.cudagraph_mark_step_begin()
                self.loss(ids, ids).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=not self.compiled)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds

    def close(self):
        pass


class Piper:
    """Steps of a process that sleeps when it is not its turn."""

    def __init__(self, program, graphs, kernels, arch, hidden, devices, folder):
        self.name = f"piper, graphs {graphs}, kernels {kernels}" + (f", {devices} devices" if devices > 1 else "")
        layers, heads, tokens, samples = SIZES[hidden]
        more = "flash_attention = true\ndropout = false\ntie_embeddings = false\n" if arch == "gpt" else ""
        (folder / "model.toml").write_text(
            f'[model]\nname = "bench"\narch = "{"gpt" if arch == "gpt" else "llama3"}"\nhidden = {hidden}\nlayers = {layers}\nheads = {heads}\n'
            f'ffn = {4 * hidden}\nvocab = {VOCABULARY}\nseq = {tokens}\n{more}'
            f'[step]\nbatch = {samples * MICROBATCHES}\nweights = "bfloat16"\n[data]\nkind = "synthetic"\n[run]\nschedule = "s.piper"\n'
        )
        (folder / "s.piper").write_text(
            f"devices(1)\nsplit(batch, parts={MICROBATCHES}, as=mb)\nplace({{}}, devices=[0])\n"
            if devices == 1
            else f"mesh(pp={devices})\nsplit(batch, parts={MICROBATCHES}, as=mb)\nplace({{}}, along=pp, stages={devices}, transfers=p2p)\n"
            "use 1f1b(stages=stage, microbatches=mb)\n"
        )
        self.metrics = folder / f"{graphs}-{kernels}.jsonl"
        self.metrics.unlink(missing_ok=True)
        self.log = open(folder / f"{graphs}-{kernels}.log", "w+")
        command = [program, "train", folder / "model.toml", "--on", "cuda", "--graphs", graphs, "--kernels", kernels,
                   "--kernel-cache", folder / "kernels", "--steps", 100000, "--metrics", self.metrics]
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log, stderr=subprocess.STDOUT)
        self.wait_for(6)  # memory and graphs have their places
        self.sleep()

    def seconds(self):
        lines = self.metrics.read_text().splitlines() if self.metrics.exists() else []
        return [line["seconds"] for line in map(json.loads, lines) if "seconds" in line]

    def wait_for(self, steps):
        while len(self.seconds()) < steps:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"{self.name}: {self.log.read()}")
            time.sleep(0.02)

    def sleep(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        torch.cuda.synchronize()
        time.sleep(0.3)  # what it had begun

    def steps(self, count):
        before = len(self.seconds())
        os.kill(self.process.pid, signal.SIGCONT)
        self.wait_for(before + 2 + count)
        self.sleep()
        return self.seconds()[before + 2 : before + 2 + count]  # the first two may have slept

    def close(self):
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.log.seek(0)
        return self.log.read().split("loss ")[-1]


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def compare(options, hidden):
    with tempfile.TemporaryDirectory() as folder:
        sides = [PyTorch(peer, options.arch, hidden) for peer in options.peers.split(",") if peer]
        ours = []
        for devices in map(int, options.devices.split(",")):
            for graphs, kernels in itertools.product(options.graphs.split(","), options.kernels.split(",")):
                own = pathlib.Path(folder) / f"{devices}"
                own.mkdir(exist_ok=True)
                ours.append(Piper(options.piper, graphs, kernels, options.arch, hidden, devices, own))
        for side in sides:
            side.steps(4)
        rounds = {side.name: [] for side in sides + ours}
        for _ in range(options.rounds):
            for side in sides + ours:
                rounds[side.name].append(statistics.median(side.steps(options.steps)))
        for name, seconds in rounds.items():
            against = "".join(f", {spread([a / b for a, b in zip(seconds, rounds[peer.name])])} of {peer.name}" for peer in sides if peer.name != name)
            print(f"{options.arch} {hidden}: {name}: {spread([s * 1e3 for s in seconds])} ms{against}", flush=True)
        for side in ours:
            table = side.close()
            if options.tables:
                print(f"{side.name}: {table}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("piper")
    parser.add_argument("--sizes", default="256,1024,2048")
    parser.add_argument("--arch", default="gpt", choices=["gpt", "llama"])
    parser.add_argument("--peers", default="eager,compile,reduce-overhead")
    parser.add_argument("--graphs", default="none,chunk,step")
    parser.add_argument("--kernels", default="eager")
    parser.add_argument("--devices", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of a round")
    parser.add_argument("--tables", action="store_true", help="what every device did, as piper prints it")
    options = parser.parse_args()
    for hidden in map(int, options.sizes.split(",")):
        compare(options, hidden)
        torch.compiler.reset()
        torch.cuda.empty_cache()


main()

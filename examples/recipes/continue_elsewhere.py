"""Continues a run on another mesh: the first half in a pipeline of two devices, the second on four replicas with ZeRO-3. The losses are those
of a run that was never interrupted, and the last checkpoint has the same scores in transformers.

    python examples/recipes/continue_elsewhere.py --out run [--small]
"""
import torch

from recipe import follow, metrics, model_of, must_have_the_logits_of_transformers, piper as run, report

FULL = dict(layers=6, hidden=320, heads=5, ffn=864, sequence=128, batch=16, steps=12)
SMALL = dict(layers=2, hidden=32, heads=2, ffn=64, sequence=16, batch=8, steps=6)
CONFIG = """
[model]
name = "synthetic"
arch = "llama3"
layers = {layers}
hidden = {hidden}
heads = {heads}
ffn = {ffn}
vocab = 256

[step]
batch = {batch}
sequence = {sequence}
weights = "float32"

[optimizer]
learning_rate = 3e-3

[lr_schedule]
total = {steps}

[data]
kind = "synthetic"

[run]
steps = {steps}
"""
PIPELINE = """
mesh(pp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=2)
use 1f1b(stages=stage, microbatches=mb)
"""
REPLICAS = """
mesh(dp=4)
place({}, mesh={})
replicate({}, along=dp, zero=3)
"""


def continue_elsewhere(out, small):
    size = SMALL if small else FULL
    half = size["steps"] // 2
    out.mkdir(parents=True, exist_ok=True)
    (out / "run.toml").write_text(CONFIG.format(**size))
    (out / "pipeline.piper").write_text(PIPELINE)
    (out / "replicas.piper").write_text(REPLICAS)
    for schedule in ("pipeline.piper", "replicas.piper"):
        run("check", "run.toml", schedule, folder=out)
    common = ["train", "run.toml", "--checkpoints", "checkpoints"]
    run(*common, "--schedule", "pipeline.piper", "--steps", half, "--metrics", "metrics.jsonl", folder=out)
    run(*common, "--schedule", "replicas.piper", "--resume", "--metrics", "metrics.jsonl", folder=out)
    run("train", "run.toml", "--schedule", "pipeline.piper", "--metrics", "whole.jsonl", folder=out)
    continued, whole = metrics(out / "metrics.jsonl"), metrics(out / "whole.jsonl")
    report(continued)
    assert list(continued) == list(whole), "every step once"
    worst = max(abs(continued[step]["loss"] - whole[step]["loss"]) for step in whole)
    print(f"losses differ by at most {worst:.2g} from those of a run that was not interrupted")
    assert worst < 1e-4
    tokens = torch.randint(256, (size["sequence"],), generator=torch.Generator().manual_seed(0))
    folder = out / f"checkpoints/step-{size['steps']:08}"
    must_have_the_logits_of_transformers(folder, model_of(CONFIG.format(**size)), tokens, out)
    return folder


if __name__ == "__main__":
    follow(continue_elsewhere, __doc__)

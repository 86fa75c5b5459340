"""Trains a mixture of experts with a balance loss on two sources, documentation and code, 3 to 1, experts divided among two devices; then opens
it in transformers, where it has the same scores.

    python examples/recipes/mixture.py --out run [--small]
"""
import piper

from recipe import (ROOT, follow, loss_in_transformers, metrics, model_of, must_be_close, must_have_the_logits_of_transformers, piper as run,
                    report, train_tokenizer)

FULL = dict(vocab=4096, layers=4, hidden=256, heads=4, moe_ffn=256, sequence=128, batch=16, steps=60, rate=1e-3)
SMALL = dict(vocab=400, layers=2, hidden=32, heads=2, moe_ffn=32, sequence=16, batch=8, steps=8, rate=1e-2)
CONFIG = """
[model]
name = "mixture"
arch = "qwen3-moe"
layers = {layers}
hidden = {hidden}
heads = {heads}
head_dim = 16
experts = 4
top_k = 2
moe_ffn = {moe_ffn}
capacity_factor = 2.0            # experts / top_k: no token is dropped, as in transformers
router_aux_loss_coef = {balance}
vocab = {vocab}

[step]
batch = {batch}
sequence = {sequence}
weights = "float32"

[optimizer]
learning_rate = {rate}
clip = 1.0

[data]
kind = "tokens"

[[data.sources]]
paths = "documentation"
weight = 3

[[data.sources]]
paths = "code"
weight = 1

[run]
steps = {steps}
schedule = "run.piper"
metrics = "metrics.jsonl"
checkpoints = "checkpoints"
checkpoint_every = {saved}
"""
SCHEDULE = """
mesh(ep=2)
split(batch, parts=2, as=mb)
place({}, mesh={})
replicate({}, along=ep, zero=1)
shard({experts=*}, along=ep)
"""


def mixture(out, small):
    size = SMALL if small else FULL
    out.mkdir(parents=True, exist_ok=True)
    sources = {"documentation": sorted(ROOT.glob("docs/*.md")), "code": sorted(ROOT.glob("src/base/*.h" if small else "src/**/*.h"))}
    train_tokenizer([file for files in sources.values() for file in files], size["vocab"], out / "tokenizer")
    for name, files in sources.items():
        run("data", "prepare", *files, "--tokenizer", "tokenizer", "-o", name, folder=out)
    (out / "run.toml").write_text(CONFIG.format(**size, saved=size["steps"] - 1, balance=0.01))
    (out / "run.piper").write_text(SCHEDULE)
    run("check", "run.toml", "run.piper", folder=out)
    run("train", "run.toml", folder=out)
    steps = metrics(out / "metrics.jsonl")
    report(steps)
    # the balance loss is part of the loss: without it, the step after the checkpoint has the cross entropy of transformers
    last = size["steps"] - 1
    folder = out / f"checkpoints/step-{last:08}"
    (out / "plain.toml").write_text(CONFIG.format(**size, saved=size["steps"] - 1, balance=0.0).replace('"checkpoints"', '"plain"'))
    run("train", "plain.toml", "--init", folder, "--steps", 1, "--metrics", "plain.jsonl", folder=out)
    samples = piper.Samples([piper.Source(out / "documentation", 3), piper.Source(out / "code", 1)], sequence=size["sequence"], batch=size["batch"])
    must_be_close("loss of the first samples", metrics(out / "plain.jsonl")[0]["loss"], loss_in_transformers(folder, samples, 0))
    must_have_the_logits_of_transformers(folder, model_of(CONFIG.format(**size, saved=last, balance=0.0)), samples.at(0)[0][0], out)
    return folder


if __name__ == "__main__":
    follow(mixture, __doc__)

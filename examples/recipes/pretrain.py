"""Pretrains a Llama of 10 million parameters on the text of this repository, with a tokenizer trained on it, in a pipeline of two devices
whose halves are replicated; then opens it in transformers, where it has the same scores.

    python examples/recipes/pretrain.py --out run [--small]
"""
import piper

from recipe import (ROOT, follow, loss_in_transformers, metrics, model_of, must_be_close, must_have_the_logits_of_transformers, piper as run,
                    report, train_tokenizer)

FULL = dict(vocab=4096, layers=6, hidden=320, heads=5, ffn=864, sequence=128, batch=16, steps=60, warmup=10, rate=1e-3)
SMALL = dict(vocab=400, layers=2, hidden=32, heads=2, ffn=64, sequence=32, batch=8, steps=8, warmup=2, rate=1e-2)
CONFIG = """
[model]
name = "repository"
arch = "llama3"
layers = {layers}
hidden = {hidden}
heads = {heads}
ffn = {ffn}
vocab = {vocab}

[step]
batch = {batch}
sequence = {sequence}
weights = "float32"

[optimizer]
learning_rate = {rate}
clip = 1.0

[lr_schedule]
warmup = {warmup}

[data]
kind = "tokens"
paths = "data"
validation = 0.01

[run]
steps = {steps}
schedule = "run.piper"
metrics = "metrics.jsonl"
checkpoints = "checkpoints"
checkpoint_every = {saved}
"""
SCHEDULE = """
mesh(pp=2, dp=2)
split(batch, parts=2, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=dp, zero=2)
use 1f1b(stages=stage, microbatches=mb)
"""


def pretrain(out, small):
    """The folder of the last checkpoint but one, whose next step is known."""
    size = SMALL if small else FULL
    texts = sorted(ROOT.glob("docs/*.md")) if small else sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cc")])
    out.mkdir(parents=True, exist_ok=True)
    train_tokenizer(texts, size["vocab"], out / "tokenizer")
    run("data", "prepare", *texts, "--tokenizer", "tokenizer", "-o", "data", folder=out)
    (out / "run.toml").write_text(CONFIG.format(**size, saved=size["steps"] - 1))
    (out / "run.piper").write_text(SCHEDULE)
    run("check", "run.toml", "run.piper", folder=out)
    run("train", "run.toml", folder=out)
    steps = metrics(out / "metrics.jsonl")
    report(steps)
    last = size["steps"] - 1
    folder = out / f"checkpoints/step-{last:08}"
    samples = piper.Samples(out / "data", sequence=size["sequence"], batch=size["batch"], validation=0.01)
    must_be_close(f"loss of step {last}", steps[last]["loss"], loss_in_transformers(folder, samples, last * size["batch"]))
    must_have_the_logits_of_transformers(folder, model_of(CONFIG.format(**size, saved=last)), samples.at(0)[0][0], out)
    return folder


if __name__ == "__main__":
    follow(pretrain, __doc__)

"""From a pretrained model and a folder of raw text to an evaluated, exported model with the `piper` program alone, in a pipeline of two devices
whose halves are replicated; then opens the export in transformers, where it has the same scores. The pretrained model is made here, so that
nothing is downloaded.

    python examples/recipes/from_the_shell.py --out run [--small]
"""
import json

import torch

from finetune import make_pretrained
from pretrain import SCHEDULE
from text_to_model import FULL, SMALL

from recipe import ROOT, follow, metrics, model_of, must_have_the_logits_of_transformers, piper as run, report, train_tokenizer

CONFIG = """
[model]
name = "pretrained"
arch = "llama3"
layers = {layers}
hidden = {hidden}
heads = 4
kv_heads = 2
ffn = {ffn}
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
paths = "data"

[evaluation]
batches = {evaluated}

[evaluation.data]
kind = "tokens"
paths = "held_out"

[run]
steps = {steps}
schedule = "run.piper"
metrics = "metrics.jsonl"
checkpoints = "checkpoints"
"""


def from_the_shell(out, small):
    size = {**(SMALL if small else FULL)}
    out.mkdir(parents=True, exist_ok=True)
    texts = sorted(ROOT.glob("docs/*.md"))
    size["vocab"] = train_tokenizer(texts, size["vocab"], out / "pretrained")
    make_pretrained(out / "pretrained", size["vocab"], size)
    config = CONFIG.format(**size, ffn=2 * size["hidden"])
    (out / "run.toml").write_text(config)
    (out / "run.piper").write_text(SCHEDULE)
    for folder, some in (("data", texts[:-6]), ("held_out", texts[-6:])):
        run("data", "prepare", *some, "--tokenizer", "pretrained", "-o", folder, folder=out)
    run("check", "run.toml", "run.piper", folder=out)
    run("profile", "run.toml", "--schedule", "run.piper", "-o", "profile", "--steps", 2, folder=out)
    start = CONFIG.format(**{**size, "rate": 1e-30, "steps": 1}, ffn=2 * size["hidden"])  # nothing changes: the pretrained model is evaluated
    (out / "start.toml").write_text(start.replace('"metrics.jsonl"', '"start.jsonl"').replace('checkpoints = "checkpoints"\n', ""))
    run("train", "start.toml", "--init", "pretrained", folder=out)
    run("train", "run.toml", "--init", "pretrained", "--costs", "profile/costs.txt", "--cluster", "profile/cluster.toml", folder=out)
    run("checkpoint", "export", f"checkpoints/step-{size['steps']:08}", "-o", "exported", folder=out)

    steps = metrics(out / "metrics.jsonl")
    report(steps)
    seconds = sorted(row["seconds"] for row in steps.values())[len(steps) // 2]
    predicted = steps[0]["predicted_seconds"]
    print(f"a step: predicted {predicted * 1e3:.1f} ms, measured {seconds * 1e3:.1f} ms (median): {predicted / seconds - 1:+.0%}")
    before, after = evaluation(out / "start.jsonl"), evaluation(out / "metrics.jsonl")
    print(f"held out: loss {before['loss']:.3f} -> {after['loss']:.3f}, perplexity {before['perplexity']:.1f} -> {after['perplexity']:.1f}")
    assert after["loss"] < before["loss"], "nothing was learned"
    tokens = torch.randint(size["vocab"], (size["sequence"],), generator=torch.Generator().manual_seed(0))
    must_have_the_logits_of_transformers(out / "exported", model_of(config), tokens, out)
    return out / "exported"


def evaluation(path):
    """The last of a run."""
    return [row["evaluation"] for row in map(json.loads, path.read_text().splitlines()) if "evaluation" in row][-1]


if __name__ == "__main__":
    follow(from_the_shell, __doc__)

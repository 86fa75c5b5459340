"""From a pretrained model and a folder of raw text to an evaluated, exported model, in one script and under any schedule: tokens, evaluation,
training, evaluation, export; the step beside its prediction; and the export in transformers, with the same logits and the same evaluation.

    python examples/recipes/text_to_model.py --out run [--small] [--model FOLDER] [--text FOLDER] [--schedule FILE]

Without --model and --text, a model is made here and learns the documentation of this repository, so that nothing is downloaded. --schedule is
a file of directives; the default is a pipeline of two devices whose halves are replicated, with ZeRO-2.
"""
import os
import shutil
from pathlib import Path

import torch
import transformers

import piper
from finetune import make_pretrained
from piper.integrations import transformers as integration

from recipe import ROOT, follow, must_be_close, must_be_equal, piper as run, train_tokenizer

FULL = dict(vocab=4096, layers=8, hidden=256, sequence=128, batch=16, steps=120, rate=1e-3, evaluated=8)
SMALL = dict(vocab=400, layers=4, hidden=32, sequence=32, batch=8, steps=8, rate=1e-2, evaluated=3)
CLUSTER = """
[cluster]
name = "this machine"

[device.core.peak]
float32 = {speed}

[[nodes]]
devices = {devices}
device = "core"
processors = {processors}

[[links]]
name = "memory"
bandwidth = "5GB/s"
latency = "20us"
"""


def text_to_model(out, small, model=None, text=None, schedule=None):
    size = SMALL if small else FULL
    out.mkdir(parents=True, exist_ok=True)
    if model is None:
        model = out / "pretrained"
        make_pretrained(model, train_tokenizer(sorted(ROOT.glob("docs/*.md")), size["vocab"], model), size)
    run("data", "prepare", text or ROOT / "docs/*.md", "--tokenizer", model, "-o", "data", folder=out)
    samples, held_out = (piper.Samples(out / "data", sequence=size["sequence"], batch=size["batch"], validation=0.05, split=split)
                         for split in ("training", "validation"))
    evaluated = [batch for batch, _ in zip(held_out, range(size["evaluated"]))]

    module = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    integration.use(module)
    integration.annotate(module)
    graph = piper.capture(module, evaluated[0], loss=lambda model, batch: model(**batch, use_cache=False).loss)
    schedule = (piper.Schedule(Path(schedule).read_text()) if schedule else
                piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2))
    devices = piper.compile(graph, schedule, measure=False).devices
    write_cluster(out / "cluster.toml", graph, evaluated[0], devices)
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=size["rate"], groups=piper.decay_matrices_only(module)), clip=1.0,
                       cluster=out / "cluster.toml", callbacks=[piper.callbacks.MetricsFile(out / "metrics.jsonl")]) as trainer:
        print(trainer.plan.check())
        before = trainer.evaluate(evaluated)
        results = list(trainer.train(samples, steps=size["steps"]))
        after = trainer.evaluate(evaluated)
        folder = trainer.save(out / "checkpoints", wait=True)
        module.load_state_dict(trainer.state_dict())
        predicted = trainer.plan.simulate().seconds
    measured = sorted(result.seconds for result in results)[len(results) // 2]
    print(f"loss {results[0].loss:.3f} -> {results[-1].loss:.3f}, {size['batch'] * size['sequence'] / measured:,.0f} tokens/s (median)")
    print(f"held out: loss {before.loss:.3f} -> {after.loss:.3f}, perplexity {before.perplexity:.1f} -> {after.perplexity:.1f}")
    print(f"a step: predicted {predicted * 1e3:.1f} ms, measured {measured * 1e3:.1f} ms (median): {predicted / measured - 1:+.0%}")
    assert after.loss < before.loss, "nothing was learned"
    for file in Path(model).glob("tokenizer*"):
        shutil.copy(file, folder)

    opened = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    module.eval()
    with torch.no_grad():
        must_be_equal(f"{folder} in transformers: logits", module(evaluated[0]["input_ids"]).logits, opened(evaluated[0]["input_ids"]).logits)
        losses = [opened(**batch).loss.item() for batch in evaluated]
    must_be_close("held-out loss", after.loss, sum(losses) / len(losses), 1e-5)
    return folder


def write_cluster(path, graph, batch, devices):
    """This machine, as fast as one device of it computes a step: what the prediction for all of them goes by."""
    def describe(speed, devices):
        path.write_text(CLUSTER.format(speed=speed, devices=devices, processors=min(devices, os.cpu_count())))

    describe(1e9, 1)
    with piper.Trainer(graph, cluster=path) as alone:
        measured = min(alone.step(batch).seconds for _ in range(3))
        describe(1e9 * alone.plan.simulate().seconds / measured, devices)


if __name__ == "__main__":
    follow(text_to_model, __doc__, model="folder of a pretrained model of transformers, with its tokenizer", text="folder of raw text",
           schedule="file of directives")

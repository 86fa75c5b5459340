"""Fine-tunes a pretrained model of transformers on conversations, with the loss on the answers only, under DualPipeV; then opens it in
transformers: it has the trainer's logits, and its loss on the answers has fallen. The model is made here, so that nothing is downloaded.

    python examples/recipes/finetune.py --out run [--small]
"""
import json
import shutil

import torch
import transformers

import piper
from piper.integrations import transformers as integration

from recipe import ROOT, follow, must_be_equal, piper as run, train_tokenizer

FULL = dict(layers=8, hidden=256, sequence=128, batch=16, steps=120, rate=3e-4, chats=2000)
SMALL = dict(layers=4, hidden=32, sequence=64, batch=8, steps=6, rate=1e-2, chats=64)


def make_pretrained(folder, vocab, size):
    """Stands for the model that you would download."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=vocab, hidden_size=size["hidden"], intermediate_size=2 * size["hidden"], eos_token_id=0,
                                      num_hidden_layers=size["layers"], num_attention_heads=4, num_key_value_heads=2, bos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def write_chats(path, count):
    """Additions: the answers can be learned."""
    with open(path, "w") as file:
        for i in range(count):
            a, b = i % 10, i * 7 % 10
            file.write(json.dumps({"messages": [{"role": "user", "content": f"What is {a} + {b}?"},
                                                {"role": "assistant", "content": f"{a} + {b} is {a + b}."}]}) + "\n")


def prepare(out, size):
    """A pretrained model in `pretrained`, and samples of conversations, whose answers count."""
    out.mkdir(parents=True, exist_ok=True)
    vocab = train_tokenizer(sorted(ROOT.glob("docs/*.md")), 400, out / "pretrained")
    make_pretrained(out / "pretrained", vocab, size)
    write_chats(out / "chats.jsonl", size["chats"])
    run("data", "prepare", "chats.jsonl", "--as", "chat", "--tokenizer", "pretrained", "-o", "chats", folder=out)
    return piper.Samples(out / "chats", sequence=size["sequence"], batch=size["batch"], packing="none", loss="completions")


def finetune(out, small):
    size = SMALL if small else FULL
    samples = prepare(out, size)
    model = transformers.AutoModelForCausalLM.from_pretrained(out / "pretrained", dtype=torch.float32)
    integration.use(model)
    integration.annotate(model)
    example = next(iter(samples))
    graph = piper.capture(model, example, loss=lambda model, batch: model(**batch, use_cache=False).loss)
    schedule = piper.schedules.dualpipev(ranks=2, microbatches=4)
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=size["rate"]), devices=2) as trainer:
        print(trainer.plan.check())
        losses, seconds = [], []
        for result in trainer.train(samples, steps=size["steps"]):
            losses.append(result.loss)
            seconds.append(result.seconds)
        tokens = size["batch"] * size["sequence"]
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {tokens / sorted(seconds)[len(seconds) // 2]:,.0f} tokens/s (median)")
        assert losses[-1] < losses[0], "nothing was learned"
        folder = trainer.save(out / "checkpoints", wait=True)
        model.load_state_dict(trainer.state_dict())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(out / "pretrained" / name, folder)

    tuned = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        must_be_equal(f"{folder} in transformers: logits", model.eval()(example["input_ids"]).logits, tuned(example["input_ids"]).logits)
    return folder


if __name__ == "__main__":
    follow(finetune, __doc__)

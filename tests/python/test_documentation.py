"""The blocks of docs/python.md run, one after the other as a reader would; so does the first of docs/data.md. Blocks of other pages parse,
and what they use of `piper` exists."""
import ast
import itertools
import json
import os
import re
import subprocess

import pytest
import torch
import torch.nn as nn

import piper
import small
from conftest import ROOT

PROGRAM = os.environ.get("PIPER_PROGRAM")


def blocks(page, kind="python"):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


class Mixture(nn.Module):
    """Names as in models of transformers."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(11, 8)
        self.model.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.mlp = nn.Module()
            layer.mlp.experts = nn.Linear(8, 8)
            self.model.layers.append(layer)


def language_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64,
                                      max_position_embeddings=32)
    return transformers.AutoModelForCausalLM.from_config(config)


def trained():
    """What the page has when it comes to a trainer that runs: a small model on two devices."""
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    batches = [small.batch(16, seed=seed) for seed in range(2)]
    graph = piper.capture(model, batches[0], loss=small.loss)
    trainer = piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=4), optimizer=piper.AdamW(lr=1e-3), devices=2)
    return {"trainer": trainer, "batches": batches, "loader": batches, "held_out": batches, "result": trainer.step(batches[0])}


def of_transformers_trainer(folder):
    pytest.importorskip("accelerate")
    from transformers import TrainingArguments, default_data_collator

    ids = torch.randint(0, 62, (16, 8))
    return {"model": language_model(), "data": [{"input_ids": row, "labels": row} for row in ids], "held_out": [],
            "collator": default_data_collator,
            "args": TrainingArguments(output_dir=str(folder), per_device_train_batch_size=8, max_steps=1, save_strategy="no", use_cpu=True,
                                      report_to="none")}


# How each block of python.md begins, and what the reader has there. Words are replaced where the page means the reader's.
READERS = [
    ("import piper", lambda folder: {"model": small.Stack(), "example_batch": small.batch(16), "my_loss": small.loss,
                                     "batches": [small.batch(16)]}),
    ("def forward(self, x):", lambda folder: {}),
    ("piper.annotate_modules(model, {\"layer\": \"model.layers.*\"", lambda folder: {"model": Mixture()}),
    ("s = (piper.Schedule()", lambda folder: {}),
    ("optimizer = piper.AdamW(", lambda folder: {"model": Mixture()}),
    ("for result in trainer.train(loader, steps=1000):", lambda folder: trained()),
    ("found = trainer.evaluate(held_out)", lambda folder: trained()),
    ("done = trainer.resume(\"run\")", lambda folder: trained()),
    ("torch.save({\"model\": trainer.state_dict()", lambda folder: trained()),
    ("if trainer.rank == 0:", lambda folder: trained()),
    ("graph = piper.capture(model, example_batch, loss=my_loss, on=\"cuda\")", None),  # where there is a GPU
    ("from piper.integrations import transformers as integration", lambda folder: {"model": language_model(), "ids": torch.randint(0, 62, (8, 8))}),
    ("from piper.integrations.transformers import Trainer", of_transformers_trainer),
]
REPLACED = [("steps=1000", "steps=2"), ("% 500", "% 1"), ("callbacks=[...]", "callbacks=[]")]


def test_every_block_has_a_reader():
    found = blocks("python.md")
    assert [block for block, (begin, _) in itertools.zip_longest(found, READERS, fillvalue=("", None)) if not block.startswith(begin or "?")] == []


@pytest.mark.parametrize("number", range(len(READERS)), ids=[begin[:40] for begin, _ in READERS])
def test_blocks_run(number, tmp_path, monkeypatch):
    block, reader = blocks("python.md")[number], READERS[number][1]
    if reader is None:
        pytest.skip("for a GPU")
    monkeypatch.chdir(tmp_path)
    names = {"piper": piper, "torch": torch, "itertools": itertools, **reader(tmp_path)}
    for word, instead in REPLACED:
        block = block.replace(word, instead)
    try:
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    finally:
        if isinstance(names.get("trainer"), piper.Trainer):
            names["trainer"].close()
    if "trainer.save(" in block and "torch.save" not in block:
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-00000002", "step-00000003"]


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_what_is_used_of_piper_exists(page):
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.Attribute):
                continue
            path = ast.unparse(node)
            if re.fullmatch(r"piper(\.\w+)+", path) and not path.startswith("piper.integrations"):
                at = piper
                for name in path.split(".")[1:]:
                    assert hasattr(at, name), f"{page}: there is no {path}"
                    at = getattr(at, name)


@pytest.mark.skipif(not PROGRAM, reason="PIPER_PROGRAM does not say where the program is")
def test_data_is_prepared_as_shown(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<end>": 0, **{f"w{i}": i + 1 for i in range(20)}}, unk_token="<end>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (tmp_path / "qwen3").mkdir()
    made.save(str(tmp_path / "qwen3/tokenizer.json"))
    (tmp_path / "qwen3/tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    (tmp_path / "corpus/a").mkdir(parents=True)
    text = " ".join(f"w{i % 20}" for i in range(400))
    (tmp_path / "corpus/a/one.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(4)))
    (tmp_path / "run.toml").write_text(
        '[model]\nname = "small"\narch = "llama3"\nhidden = 16\nlayers = 2\nheads = 2\nffn = 32\nvocab = 32\n[step]\nbatch = 4\nsequence = 16\n'
        '[data]\nkind = "tokens"\npaths = "data"\n[run]\nsteps = 2\n')
    commands = [line.partition("  ")[0].strip() for line in blocks("data.md", "")[0].splitlines()]
    assert [command.split()[:2] for command in commands] == [["piper", "data"], ["piper", "train"]]
    for command in commands:
        done = subprocess.run(command.replace("piper", f"'{PROGRAM}'", 1), shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert "data: " in done.stdout and (tmp_path / "data/data.json").exists()

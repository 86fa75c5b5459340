"""Compiled kernels as users of the program ask for them, on CPUs."""
import json
import os
import subprocess

import pytest

pytestmark = pytest.mark.long  # processes that compile begin with importing PyTorch

CONFIG = """
[model]
name = "tiny"
arch = "gpt"
hidden = 8
layers = 1
heads = 2
ffn = 16
vocab = 16
seq = 8
dropout = false
[step]
batch = 2
sequence = 8
[run]
steps = 2
metrics = "metrics.jsonl"
"""


def program(folder, *words, **environment):
    (folder / "run.toml").write_text(CONFIG)
    return subprocess.run([os.environ["PIPER_PROGRAM"], *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, **environment})


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_no_compiler(tmp_path):
    built = program(tmp_path, "kernels", "build", "run.toml", "--kernel-cache", "empty", CXX="/no/such")
    assert built.returncode == 3, built.stdout
    assert built.stdout.startswith("0 kernels") and "runs as recorded operators" in built.stderr
    done = program(tmp_path, "train", "run.toml", "--kernels", "inductor", "--kernel-cache", "empty", CXX="/no/such")
    assert done.returncode == 0 and len(losses(tmp_path)) == 2, done.stderr


def test_check_shows_their_memory(tmp_path):
    (tmp_path / "one.piper").write_text("devices(1)\nplace({}, devices=[0])\n")

    def peak(*words):
        done = program(tmp_path, "check", "run.toml", "one.piper", "--format", "json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["templates"][0]["peak_bytes"]

    assert peak("--kernels", "inductor") != peak()
    done = program(tmp_path, "check", "analytic:Qwen3-0.6B", "one.piper", "--kernels", "inductor")
    assert done.returncode == 1 and "can be trained" in done.stderr

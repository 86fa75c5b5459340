"""Checkpoints on disk and the `safetensors` package: each reads what the other writes."""
import json
import os
import subprocess
import zlib
from pathlib import Path

import pytest
import torch

safetensors = pytest.importorskip("safetensors.torch")

PROGRAM = Path(os.environ["PIPER_PROGRAM"])
WRITER = PROGRAM.parent / "write_checkpoint"  # tests/checkpoint/write_checkpoint
NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
BLOCK = 4 << 20


def raw(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def some_tensors():
    """Of every dtype, odd sizes among them, an empty one and a scalar; one is larger than a block."""
    random = torch.Generator().manual_seed(1)
    tensors = {f"layer.{i}.{str(dtype)[6:]}": torch.randint(0, 2, (3, 5 + i), generator=random).to(dtype)
               for i, dtype in enumerate(NAMES)}
    tensors["empty"] = torch.empty(0, 7)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["wide"] = torch.randn(1025, 1024, generator=random)
    return tensors


def save(parent, step, shard_size, model, optimizer):
    def words(tensors):
        return [f"{name}:{NAMES[t.dtype]}:{','.join(map(str, t.shape))}" for name, t in tensors.items()]
    data = b"".join(raw(t) for t in [*model.values(), *optimizer.values()])
    command = [WRITER, parent, str(step), str(shard_size), *words(model), "optimizer", *words(optimizer)]
    subprocess.run(command, input=data, check=True)
    return Path(parent) / f"step-{step:08}"


def piper(*words):
    return subprocess.run([PROGRAM, "checkpoint", *map(str, words)], capture_output=True, text=True)


@pytest.mark.parametrize("shard_size", [1, 200, 5_000_000_000])
def test_the_package_reads_what_piper_writes(tmp_path, shard_size):
    model, optimizer = some_tensors(), {"wide.exp_avg": torch.randn(1025, 1024)}
    folder = save(tmp_path, 7, shard_size, model, optimizer)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in model.values())
    assert set(index["weight_map"]) == set(model)
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(folder / file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}
            assert opened.get_tensor(name).dtype == model[name].dtype
            assert torch.equal(opened.get_tensor(name), model[name])
    kept = {}
    for file in sorted(folder.glob("optimizer-*.safetensors")):
        kept.update(safetensors.load_file(file))
    assert kept.keys() == optimizer.keys() and torch.equal(kept["wide.exp_avg"], optimizer["wide.exp_avg"])
    assert piper("verify", folder).returncode == 0


def piper_json(folder, step):
    """As docs/checkpoints.md describes it."""
    files = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        sums = "".join(f"{zlib.crc32(data[at:at + BLOCK]):08x}" for at in range(0, len(data), BLOCK))
        files.append({"name": file.name, "bytes": len(data), "crc32": sums})
    state = {"format": "piper-checkpoint", "version": 1, "program": "another", "step": step, "samples": 1, "updates": 1, "seed": 2**64 - 1,
             "learning_rate": 0.1, "loss": "nan", "plan": "0" * 16, "configuration": "", "extra": {}, "block_bytes": BLOCK, "files": files,
             "unknown": [1, 2]}
    text = json.dumps(state, indent=2)[:-2] + ',\n  "crc32": "00000000"\n}\n'
    return text.replace('"crc32": "00000000"\n}', f'"crc32": "{zlib.crc32(text.encode()):08x}"\n}}')


def test_piper_reads_what_another_program_writes(tmp_path):
    folder = tmp_path / "step-00000009"
    folder.mkdir()
    model = some_tensors()
    safetensors.save_file(model, folder / "model-00001-of-00001.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: "model-00001-of-00001.safetensors" for name in model}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    foreign = piper("show", folder, "--format", "json")
    assert foreign.returncode == 0 and json.loads(foreign.stdout)["state"] is None
    (folder / "piper.json").write_text(piper_json(folder, 9))
    assert piper("verify", folder).returncode == 0, piper("verify", folder).stderr
    shown = json.loads(piper("show", folder, "--format", "json").stdout)
    assert shown["state"]["step"] == 9 and shown["state"]["seed"] == 2**64 - 1
    assert {t["name"]: (t["dtype"], t["shape"]) for file in shown["files"] for t in file["tensors"]} == {
        name: (NAMES[t.dtype], list(t.shape)) for name, t in model.items()}
    same = save(tmp_path / "own", 9, 5_000_000_000, model, {})
    assert piper("diff", folder, same).stdout == f"{len(model)} of {len(model)} common tensors are equal\n"


def test_a_changed_byte_of_a_tensor_is_named(tmp_path):
    folder = save(tmp_path, 1, 5_000_000_000, {"first": torch.zeros(10), "wide": torch.zeros(2 << 20)}, {})
    file = folder / "model-00001-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[BLOCK + 5] ^= 1
    file.write_bytes(data)
    verified = piper("verify", folder)
    assert verified.returncode == 1
    assert f"{file}: bytes {BLOCK} to {2 * BLOCK} (wide) have changed since they were written" in verified.stderr

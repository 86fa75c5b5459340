"""Checkpoints: saved under one schedule, continued under another; folders that safetensors and transformers read."""
import json
from pathlib import Path

import pytest
import torch

import piper
import small
import test_state

safetensors = pytest.importorskip("safetensors.torch")
ONE = "devices(1)\nplace({}, devices=[0])\n"
BATCHES = [small.batch(seed=seed) for seed in range(6)]
CHAIN = [ONE,
         "mesh(pp=2, dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp, zero=3)\n"
         "use 1f1b(stages=stage, microbatches=mb)\n",
         "mesh(dp=4)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=1, bucket=1KB)\n"]


def stack():
    torch.manual_seed(3)
    model = small.Stack().double()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return model


@pytest.fixture(scope="module")
def graph():
    return piper.capture(stack(), small.batch(), loss=small.loss)


def trained(graph, schedule, batches, folder=None, resume=None, **more):
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=1e-2)) as trainer:
        done = trainer.resume(resume) if resume else None
        losses = [trainer.step(batch).loss for batch in batches[trainer.steps:]]
        path = trainer.save(folder, wait=True, **more) if folder else None
        return losses, trainer.state_dict(), path, done


def test_a_chain_of_schedules_equals_one_run(graph, tmp_path):
    losses, folder = [], tmp_path / "run"
    for part, schedule in enumerate(CHAIN):
        more, state, path, done = trained(graph, schedule, BATCHES[:2 * part + 2], folder, folder if part else None, extra={"part": str(part)})
        losses += more
        assert Path(path).name == f"step-{2 * part + 2:08}"
        if part:
            assert done.step == 2 * part and done.samples == 16 * part and done.extra == {"part": str(part - 1)}
    expected, weights, _, _ = trained(graph, ONE, BATCHES)
    assert losses == pytest.approx(expected, rel=1e-12)
    for name, value in weights.items():
        torch.testing.assert_close(state[name], value, rtol=1e-11, atol=1e-13)


def test_files_are_those_of_safetensors(graph, tmp_path):
    _, state, path, _ = trained(graph, CHAIN[1], BATCHES[:2], tmp_path, shard_size=4000)
    index = json.loads((Path(path) / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(state) and len(set(index["weight_map"].values())) > 1
    for name, file in index["weight_map"].items():
        assert torch.equal(safetensors.load_file(Path(path) / file)[name], state[name]), name


def test_keeps_the_newest(graph, tmp_path):
    with piper.Trainer(graph, CHAIN[1]) as trainer:
        for batch in BATCHES:
            trainer.step(batch)
            trainer.save(tmp_path, keep=2, keep_every=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000005", "step-00000006"]


def test_damage_is_left_out_or_refused(graph, tmp_path):
    trained(graph, ONE, BATCHES[:1], tmp_path)
    _, _, path, _ = trained(graph, ONE, BATCHES[:2], tmp_path)
    file = Path(path) / "model-00001-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-7] ^= 4
    file.write_bytes(data)
    with piper.Trainer(graph, ONE) as trainer:
        with pytest.warns(RuntimeWarning, match="left out.*have changed"):
            assert trainer.resume(tmp_path).step == 1
        with pytest.raises(piper.Error) as refused:
            trainer.resume(path)
        assert refused.value.code == "E902"


def test_another_model_is_refused_and_nothing_is_nothing(graph, tmp_path):
    trained(graph, ONE, BATCHES[:1], tmp_path / "run")
    other = small.Stack(dim=8).double()
    with piper.Trainer(piper.capture(other, small.batch(), loss=small.loss), ONE) as trainer:
        with pytest.raises(piper.errors.CheckpointError) as refused:
            trainer.resume(tmp_path / "run")
        assert refused.value.code == "E904"
        assert trainer.resume(tmp_path / "nothing") is None and trainer.steps == 0


def test_what_cannot_be_written_is_said_and_the_run_goes_on(graph, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with piper.Trainer(graph, ONE) as trainer:
        trainer.step(BATCHES[0])
        with pytest.raises(piper.errors.CheckpointError) as refused:
            trainer.save(tmp_path / "file", wait=True)
        assert refused.value.code == "E903"
        trainer.save(tmp_path / "file")
        trainer.step(BATCHES[1])
        with pytest.warns(RuntimeWarning, match="was not written"):
            trainer.save(tmp_path / "good", wait=True)
        assert trainer.steps == 2


def test_buffers_that_forward_writes(tmp_path):
    model, graph = test_state.captured()
    schedule = "mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp)\n"
    batches = [test_state.batch(seed) for seed in range(4)]
    _, whole, _, _ = trained(graph, schedule, batches)
    trained(graph, schedule, batches[:2], tmp_path)
    _, parts, _, _ = trained(graph, schedule, batches, resume=tmp_path)
    # the device that has seen the first samples writes its copy, so the others go on with that
    for name, value in whole.items():
        if "running" not in name:
            torch.testing.assert_close(parts[name], value)
    assert torch.equal(parts["layers.0.1.num_batches_tracked"], whole["layers.0.1.num_batches_tracked"])


def test_parameters_that_no_step_uses(tmp_path):
    """They are saved as they are in the module, and resume sets them there."""
    def captured(value):
        model = stack()
        model.register_parameter("unused", torch.nn.Parameter(torch.full((3, 5), value, dtype=torch.float64).t(), requires_grad=False))
        return model, piper.capture(model, small.batch(), loss=small.loss)
    _, first = captured(2.0)
    other, second = captured(7.0)
    _, _, path, _ = trained(first, CHAIN[1], BATCHES[:1], tmp_path)
    index = json.loads((Path(path) / "model.safetensors.index.json").read_text())
    assert safetensors.load_file(Path(path) / index["weight_map"]["unused"])["unused"].eq(2).all()
    _, state, _, _ = trained(second, ONE, BATCHES[:2], resume=tmp_path)
    assert state["unused"].eq(2).all() and other.unused.eq(2).all()


def test_a_checkpoint_that_is_being_written_is_the_newest(graph, tmp_path):
    with piper.Trainer(graph, ONE) as trainer:
        trainer.step(BATCHES[0])
        trainer.save(tmp_path)
        assert trainer.resume(tmp_path).step == 1


def test_transformers_reads_it(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=True)
    model = transformers.LlamaForCausalLM(config)
    piper.annotate_modules(model, {"layer": "model.layers.*"})
    tokens = torch.randint(0, 32, (4, 8))
    graph = piper.capture(model, {"input_ids": tokens}, loss=lambda model, batch: model(input_ids=batch["input_ids"], labels=batch["input_ids"],
                                                                                       use_cache=False).loss)
    with piper.Trainer(graph, "mesh(pp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\n"
                              "use 1f1b(stages=stage, microbatches=mb)\n", optimizer=piper.AdamW(lr=1e-2)) as trainer:
        trainer.step({"input_ids": tokens})
        path = trainer.save(tmp_path, wait=True)
        model.load_state_dict(trainer.state_dict())
    read = transformers.AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        assert torch.equal(read(tokens).logits, model(tokens).logits)

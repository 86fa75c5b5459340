"""Checkpoints: saved under one schedule, continued under another; folders that safetensors and transformers read."""
import json
from pathlib import Path

import pytest
import torch

import piper
import plain
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
    with_damaged_end(Path(path) / "model-00001-of-00001.safetensors")
    with piper.Trainer(graph, ONE) as trainer:
        with pytest.warns(RuntimeWarning, match="left out.*have changed"):
            assert trainer.resume(tmp_path).step == 1
        with pytest.raises(piper.Error) as refused:
            trainer.resume(path)
        assert refused.value.code == "E902"


def with_damaged_end(file):
    data = bytearray(file.read_bytes())
    data[-7] ^= 4
    file.write_bytes(data)


def test_damage_that_is_found_half_way(tmp_path):
    """Blocks with headers are checked before anything is replaced. This one comes later."""
    torch.manual_seed(3)
    model = small.Stack(layers=1, dim=400).double()
    large = piper.capture(model, small.batch(), loss=small.loss)
    folder = tmp_path / "run"
    _, sound, older, _ = trained(large, ONE, BATCHES[:1], folder)
    _, _, newer, _ = trained(large, ONE, BATCHES[:2], folder)
    (file,) = Path(newer).glob("model-*")
    assert file.stat().st_size > 4 << 20, "its last block is not that of the header"
    with_damaged_end(file)
    with piper.Trainer(large, ONE, optimizer=piper.AdamW(lr=1e-2)) as trainer:
        initial = trainer.state_dict()
        with pytest.warns(RuntimeWarning, match="left out.*have changed"):
            assert trainer.resume(folder).step == 1
        expected = trainer.step(BATCHES[1]).loss
        for repaired in (lambda: trainer.resume(older), lambda: trainer.load_state_dict(initial)):
            with pytest.raises(piper.CheckpointError, match="have changed"):
                trainer.resume(newer)
            for use in (trainer.state_dict, lambda: trainer.step(BATCHES[1]), lambda: trainer.evaluate(BATCHES), lambda: trainer.save(tmp_path),
                        trainer.optimizer_state_dict, lambda: trainer.samples):
                with pytest.raises(piper.CheckpointError, match="found damaged while it was read") as refused:
                    use()
                assert refused.value.code == "E902" and refused.value.help
            repaired()
            if trainer.steps == 1:
                assert all(torch.equal(value, sound[name]) for name, value in trainer.state_dict().items())
                assert trainer.step(BATCHES[1]).loss == expected
            else:
                assert all(torch.equal(value, initial[name]) for name, value in trainer.state_dict().items())
        assert trainer.steps == 2 and trainer.samples == 16, "as before the last failure"
        with pytest.raises(piper.CheckpointError, match="have changed"):
            trainer.resume(newer)  # and the end of `with` ends it


def test_the_position_in_the_data_is_a_count_of_samples(graph, tmp_path):
    """Batches of 8, then of 4, then of 8."""
    halves = piper.capture(stack(), small.batch(samples=4), loss=small.loss)
    trained(graph, CHAIN[1], BATCHES[:2], tmp_path)
    with piper.Trainer(halves, CHAIN[2]) as trainer:
        assert trainer.resume(tmp_path).samples == trainer.samples == 16
        for seed in range(3):
            trainer.step(small.batch(samples=4, seed=seed))
        assert trainer.steps == 5 and trainer.samples == 28
        trainer.save(tmp_path)
        state = trainer.state_dict(), trainer.optimizer_state_dict()
    with piper.Trainer(graph, ONE) as trainer:
        done = trainer.resume(tmp_path)
        assert (done.step, done.samples) == (5, 28)
        trainer.step(BATCHES[0])
        assert trainer.samples == 36
        trainer.load_state_dict(state[0])
        trainer.load_optimizer_state_dict(state[1])
        assert trainer.samples == 28
        del state[1]["samples"]
        trainer.load_optimizer_state_dict(state[1])
        assert trainer.samples == 40, "of a state that does not say it: five batches of 8"


def test_another_seed_and_the_middle_of_an_update_are_refused(graph, tmp_path):
    trained(graph, ONE, BATCHES[:1], tmp_path)
    for options, reason in (({"seed": 7}, "the seed is 7, and was 0 when the checkpoint was made"),
                            ({"accumulate": 2}, "made after step 1, and 2 steps make an update now")):
        with piper.Trainer(graph, CHAIN[2], **options) as trainer:
            before = trainer.state_dict()
            with pytest.raises(piper.CheckpointError, match=reason) as refused:
                trainer.resume(tmp_path)
            assert refused.value.code == "E905" and trainer.steps == 0
            assert all(torch.equal(value, before[name]) for name, value in trainer.state_dict().items())
    trained(graph, ONE, BATCHES[:2], tmp_path)
    with piper.Trainer(graph, CHAIN[2], accumulate=2) as trainer:
        assert trainer.resume(tmp_path).step == 2


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


EXPORTED = {
    "1f1b, zero 2": piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2),
    "dualpipev": piper.schedules.dualpipev(ranks=2, microbatches=4),
    "tp 2": piper.Schedule().mesh(tp=2).split(4).place({}, mesh={}).shard({"layer": "*"}, along="tp"),
}


@pytest.mark.parametrize("schedule", EXPORTED)
def test_logits_of_an_exported_model_are_those_of_plain_pytorch(schedule, tmp_path):
    transformers = pytest.importorskip("transformers")
    import language_models

    config = transformers.LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=True)
    model, batches = language_models.build(config), language_models.batches(3)
    graph = language_models.capture(model)
    _, weights = plain.train(model, batches, 4, language_models.loss)
    with piper.Trainer(graph, EXPORTED[schedule], optimizer=piper.AdamW(**plain.settings_for(model))) as trainer:
        for batch in batches:
            trainer.step(batch)
        path = trainer.save(tmp_path, wait=True)
    read = transformers.AutoModelForCausalLM.from_pretrained(path)
    assert read.dtype == torch.float32
    initial = language_models.build(config)
    model.load_state_dict(weights)
    with torch.no_grad():
        found, expected, first = (one.eval()(batches[0]["input_ids"]).logits for one in (read, model, initial))
    largest = expected.abs().max()
    assert (found - expected).abs().max() <= 1e-5 * largest < 1e-2 * (first - expected).abs().max()


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

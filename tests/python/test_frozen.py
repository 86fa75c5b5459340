"""Frozen weights: stages in which nothing is trained under every timeline, adapters around a frozen model, and what is kept for both."""
import json
from pathlib import Path

import pytest
import torch
import torch.nn as nn

import piper
import plain
import small

pp = piper.schedules


def timelines():
    """All of the library on two ranks, with as many stages as the model has layers at most."""
    for name in pp.names():
        for microbatches in (4, 6):
            try:
                yield pytest.param(pp.make(name, ranks=2, microbatches=microbatches), microbatches, id=f"{name}, {microbatches}")
                break
            except piper.ScheduleError:  # a size that it is not defined for
                continue
        else:
            raise AssertionError(f"{name} has none of these sizes")


def captured(model, batch=None, loss=small.loss):
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, batch or small.batch(samples=12), loss=loss)


def batches(count=2, samples=12):
    return [small.batch(samples, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("schedule, microbatches", list(timelines()))
@pytest.mark.parametrize("frozen", [1, pytest.param(3, marks=pytest.mark.long)])
def test_first_stages(schedule, microbatches, frozen):
    """One stage without backward, and all but the last."""
    model = small.Stack(4).double()
    for part in (model.embedding, *model.layers[:frozen]):
        part.requires_grad_(False)
    ours = plain.train_piper(captured(model), schedule, batches())
    plain.assert_equal(ours, plain.train(model, batches(), microbatches, small.loss), 1e-12)


class Adapted(nn.Module):
    """A frozen projection, and a trained one of low rank beside it."""

    def __init__(self, base, rank=3):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 0.5 * self.b(self.a(x))


def adapted():
    torch.manual_seed(0)
    model = small.Stack(4).requires_grad_(False)
    for layer in model.layers:
        layer.up, layer.down = Adapted(layer.up), Adapted(layer.down)
    return model.double()


ADAPTED = {
    "1f1b, zero 2": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2), 4),
    "zero 3": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=3), 4),
    "dualpipev": (pp.dualpipev(ranks=2, microbatches=4), 4),
    "recompute": (piper.Schedule().devices(1).split(2).place({}, devices=[0]).recompute({"layer": "*"}), 2),
    "tp 2": (piper.Schedule().mesh(tp=2).split(4).place({}, mesh={}).shard(
        {}, along="tp", parameters="*.down.base.weight: 1, *.down.a.weight: 1"), 4),
}


@pytest.mark.parametrize("schedule", ADAPTED)
def test_adapters(schedule):
    model = adapted()
    chosen, slices = ADAPTED[schedule]
    ours = plain.train_piper(captured(model, small.batch()), chosen, batches(samples=8))
    plain.assert_equal(ours, plain.train(model, batches(samples=8), slices, small.loss), 1e-12)
    before = model.state_dict()
    assert all(torch.equal(ours[1][name], before[name]) for name, value in model.named_parameters() if not value.requires_grad)


@pytest.mark.parametrize("schedule", ["1f1b, zero 2", "zero 3", "dualpipev"])
def test_what_is_kept(schedule, tmp_path):
    """Of frozen weights neither gradients nor moments nor a master copy, in memory and in checkpoints."""
    model = adapted().float()
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    graph, (chosen, _) = captured(model, small.batch()), ADAPTED[schedule]
    optimizer = piper.AdamW(lr=1e-2, master="float64")
    with piper.Trainer(graph, chosen, optimizer=optimizer) as trainer:
        elements = sum(value.numel() for value in model.parameters() if value.requires_grad)
        rows = [(len(row["devices"]), row) for row in trainer.plan.memory()]
        if schedule != "dualpipev":
            gradients = sum(count * row["gradients"] for count, row in rows)
            assert elements * 4 <= gradients <= elements * 4 * 1.1  # padded to equal shards
            assert sum(count * row["optimizer"] for count, row in rows) == gradients // 4 * 3 * 8
        else:
            assert sum(count * row["gradients"] for count, row in rows) == elements * 4
        trainer.step(small.batch())
        kept = trainer.optimizer_state_dict()["state"]
        assert kept.keys() == trained and all(entries.keys() == {"exp_avg", "exp_avg_sq", "master"} for entries in kept.values())
        folder = trainer.save(tmp_path, wait=True)
        weights = trainer.state_dict()
    stored = {name for file in json_files(folder) for name in file}
    assert {name for name in stored if name in dict(model.named_parameters())} == set(dict(model.named_parameters()))
    assert not any(name.startswith(frozen) and name != frozen for name in stored for frozen in set(dict(model.named_parameters())) - trained)
    with piper.Trainer(graph, ADAPTED["1f1b, zero 2"][0], optimizer=optimizer) as other:
        other.resume(folder)
        assert all(torch.equal(value, weights[name]) for name, value in other.state_dict().items())


def json_files(folder):
    """Names of the tensors in all files of a checkpoint."""
    for path in Path(folder).glob("**/*.safetensors"):
        with open(path, "rb") as file:
            yield json.loads(file.read(int.from_bytes(file.read(8), "little")))


@pytest.mark.parametrize("schedule", ["1f1b, zero 2", "dualpipev", "tp 2"])
def test_peft(schedule):
    """Adapters of peft around a model of transformers."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    import language_models

    model = language_models.build(transformers.LlamaConfig(
        vocab_size=language_models.WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32), torch.float64)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"],
                                                       init_lora_weights=False), autocast_adapter_dtype=False)
    chosen = {
        **ADAPTED,
        "tp 2": (piper.Schedule().mesh(tp=2).split(4).place({}, mesh={}).shard({}, along="tp"), 4),
    }[schedule]
    graph = language_models.capture(model, loss=language_models.precise_loss)
    some = language_models.batches(2)
    ours = plain.train_piper(graph, chosen[0], some)
    plain.assert_equal(ours, plain.train(model, some, chosen[1], language_models.precise_loss), 1e-12)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained and all("lora_" in name for name in trained)

"""Evaluation: what the module gives in evaluation mode on all batches together; training goes on as if there had been none."""
import copy
import math
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import piper
import plain
import small
from test_counted_losses import SCHEDULES as COUNTED, of_two_counts
from test_state import Norms

pp = piper.schedules
SCHEDULES = {
    "one device": None,
    **COUNTED,
    "zb-v": pp.zb_v(ranks=2, microbatches=4),
    "dualpipev, zero 2": pp.dualpipev(ranks=2, microbatches=4, replicas=2, zero=2),
    "1f1b, zero 3": pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=3),
    "idle device": piper.Schedule().devices(3).split(2).place({}, devices=[1]),
}


class Dropping(small.Stack):
    """With dropout between the blocks, and a metric."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = F.dropout(layer(x), 0.3, self.training)
        out = self.head(x)
        piper.metric("largest", out.detach().abs().amax(dim=(1, 2)).mean())
        return out


def loss(model, batch):
    """Means over counts of their own, and one over all."""
    logits = model(batch["tokens"])
    right = (logits.argmax(-1) == batch["targets"]).double()
    kept = (batch["targets"] >= 0).double()
    piper.metric("accuracy", (right * kept).sum() / kept.sum())
    return of_two_counts(lambda tokens: logits, batch)


def batches(count, first=0):
    """With different numbers of labels."""
    out = []
    for seed in range(first, first + count):
        batch = small.batch(seed=seed)
        generator = torch.Generator().manual_seed(seed)
        batch["targets"][torch.rand(batch["targets"].shape, generator=generator) < 0.2 + 0.3 * (seed % 3)] = -100
        out.append(batch)
    return out


def captured(model=None, of=loss):
    torch.manual_seed(0)
    model = Dropping(4, vocabulary=12).double() if model is None else model
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=of)


def together(some):
    return {name: torch.cat([batch[name] for batch in some]) for name in some[0]}


def expected(module, state, some, of=loss):
    """In plain PyTorch, on one batch of all."""
    module = copy.deepcopy(module).eval()
    module.load_state_dict(state)
    whole = together(some)
    with torch.no_grad():
        value = of(module, whole).item()
        logits = module(whole["tokens"])
    kept = whole["targets"] >= 0
    return value, {"accuracy": (logits.argmax(-1) == whole["targets"])[kept].double().mean().item(),
                   "largest": logits.abs().amax(dim=(1, 2)).mean().item()}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equals_the_module(schedule):
    graph, held_out = captured(), batches(3, first=10)
    with piper.Trainer(graph, SCHEDULES[schedule], optimizer=piper.AdamW(lr=1e-2)) as trainer:
        for batch in batches(2):
            trainer.step(batch)
        found = trainer.evaluate(held_out)
        value, metrics = expected(graph.module, trainer.state_dict(), held_out)
        assert found.loss == pytest.approx(value, rel=1e-12) == float(found)
        assert found.perplexity == pytest.approx(math.exp(value), rel=1e-12)
        assert found.metrics == pytest.approx(metrics, rel=1e-12)
        assert found.batches == 3 and found.seconds > 0
        assert graph.module.training
        trainer.step(batches(1)[0])  # new weights count
        value, _ = expected(graph.module, trainer.state_dict(), held_out)
        assert trainer.evaluate(iter(held_out)).loss == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("schedule", ["one device", "1f1b, zero 2", "1f1b, zero 3", "dualpipev", "tp 2"])
def test_changes_nothing(schedule):
    """Bit by bit: losses, dropout, weights, what the optimizer keeps."""
    runs = []
    for evaluates in (False, True):
        with piper.Trainer(captured(), SCHEDULES[schedule], optimizer=piper.AdamW(lr=1e-2)) as trainer:
            seen = []
            for step, batch in enumerate(batches(4)):
                if evaluates and step != 1:
                    trainer.evaluate(batches(2, first=10))
                seen.append(tuple(trainer.step(batch)[:3]))
            runs.append((seen, trainer.state_dict(), trainer.optimizer_state_dict()["state"], trainer.steps))
    assert runs[0][0] == runs[1][0] and runs[0][3] == runs[1][3] == 4
    for name, value in runs[0][1].items():
        assert torch.equal(value, runs[1][1][name]), name
    for name, entries in runs[0][2].items():
        assert all(torch.equal(value, runs[1][2][name][entry]) for entry, value in entries.items()), name


@pytest.mark.parametrize("name", ["llama", pytest.param("mixtral", marks=pytest.mark.long)])
@pytest.mark.thorough
def test_models_of_transformers(name):
    """Tokens divided along cp, experts along ep. Norms of transformers are in float32, so that less is said of the last digits."""
    pytest.importorskip("transformers")
    import language_models
    import test_transformers

    schedule = {
        "llama": piper.Schedule().mesh(pp=2, dp=2, cp=2).split(2).place({}, along="pp", stages=2).replicate({}, along=["dp", "cp"], zero=2)
                 .shard({}, along="cp", sequence="gather").use("1f1b"),
        "mixtral": piper.Schedule().mesh(ep=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="ep", zero=1)
                   .shard({"experts": "*"}, along="ep").shard({"layer": "*"}, along="tp"),
    }[name]
    model = test_transformers.build(name, torch.float64)
    plainly = copy.deepcopy(model).eval()
    graph = language_models.capture(model, loss=test_transformers.loss_of_next_words)
    some = language_models.batches(3)
    with piper.Trainer(graph, schedule) as trainer:
        trainer.step(some[0])
        found = trainer.evaluate(some[1:])
        plainly.load_state_dict(trainer.state_dict())
    with torch.no_grad():
        value = test_transformers.loss_of_next_words(plainly, together(some[1:])).item()
    assert found.loss == pytest.approx(value, rel=1e-10)


def test_without_counts_batches_are_seen_one_by_one():
    """No more than one of them has to be in memory."""
    def mean(model, batch):
        return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten(), reduction="none").mean()

    alive = []

    def passing():
        for seed in range(3):
            assert sum(ref() is not None for ref in alive) <= 1
            batch = small.batch(seed=seed)
            alive.append(weakref.ref(batch["tokens"]))
            yield batch
            del batch

    graph = captured(small.Stack(4, vocabulary=12).double(), mean)
    with piper.Trainer(graph, SCHEDULES["dualpipev"]) as trainer:
        found = trainer.evaluate(passing())
    assert found.loss == pytest.approx(mean(graph.module, together([small.batch(seed=seed) for seed in range(3)])).item(), rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "zero 3"])
def test_running_statistics_of_norms(schedule):
    """Those that `state_dict` has, on every device."""
    torch.manual_seed(0)
    model = Norms().double()
    piper.annotate_modules(model, {"layer": "layers.*"})

    def of(model, batch):
        return F.cross_entropy(model(batch["images"]), batch["labels"])

    def batch(seed):
        generator = torch.Generator().manual_seed(seed)
        return {"images": torch.randn(16, 4, 5, 5, generator=generator).double() + seed, "labels": torch.randint(0, 3, (16,), generator=generator)}

    schedules = {"1f1b": pp.one_f_one_b(ranks=2, microbatches=4), "zero 3": COUNTED["zero 3"]}
    graph = piper.capture(model, batch(0), loss=of)
    with piper.Trainer(graph, schedules[schedule]) as trainer:
        for _ in range(2):  # statistics change from evaluation to evaluation
            trainer.step(batch(1))
            module = copy.deepcopy(model).eval()
            module.load_state_dict(trainer.state_dict())
            with torch.no_grad():
                value = of(module, {name: torch.cat([batch(2)[name], batch(3)[name]]) for name in batch(0)}).item()
            assert trainer.evaluate([batch(2), batch(3)]).loss == pytest.approx(value, rel=1e-12)


class Branching(small.Stack):
    """A second head while it is trained, and a table that only evaluation reads."""

    def __init__(self):
        super().__init__(4, vocabulary=12)
        self.second = nn.Linear(16, 12)
        self.register_buffer("offset", torch.arange(12.0))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) + self.second(x) if self.training else self.head(x) + self.offset


@pytest.mark.parametrize("schedule", ["1f1b, zero 2", "zero 3"])
def test_a_module_that_is_evaluated_otherwise(schedule):
    graph = captured(Branching().double(), small.loss)
    with piper.Trainer(graph, SCHEDULES[schedule]) as trainer:
        trainer.step(small.batch())
        module = copy.deepcopy(graph.module).eval()
        module.load_state_dict(trainer.state_dict())
        assert trainer.evaluate([small.batch(seed=3)]).loss == pytest.approx(small.loss(module, small.batch(seed=3)).item(), rel=1e-12)


def test_its_plan():
    """Of the same schedule, without what only steps need."""
    graph = captured()
    schedule = SCHEDULES["1f1b, zero 2"]
    step, evaluation = piper.compile(graph, schedule), piper.compile(graph, schedule, evaluation=True)
    assert step.hash != evaluation.hash and "sound" in evaluation.check()
    assert evaluation.order().split("\n")[0].count("F") == step.order().split("\n")[0].count("F") and "B" not in evaluation.order()
    assert " update " in step.text() and " update " not in evaluation.text() and "reduce_scatter" not in evaluation.text()
    for ours, trained in zip(evaluation.memory(), step.memory(), strict=True):
        assert ours["activations"] < trained["activations"] and ours["peak"] <= trained["peak"]
        assert all(ours[kept] == trained[kept] for kept in ("weights", "gradients", "optimizer"))
    with piper.Trainer(graph, schedule) as trainer:
        assert trainer.evaluation_plan.hash == evaluation.hash


def test_refuses():
    with piper.Trainer(captured()) as trainer:
        with pytest.raises(piper.ScheduleError, match="no batches") as caught:
            trainer.evaluate([])
        assert caught.value.code == "E105"
        with pytest.raises(piper.CaptureError, match="a dictionary with tokens, targets"):
            trainer.evaluate([{"tokens": small.batch()["tokens"]}])
        with pytest.raises(piper.ScheduleError, match="input tokens is") as caught:
            trainer.evaluate([small.batch(samples=4)])
        assert caught.value.code == "E105"
        assert trainer.evaluate(batches(1)).batches == 1  # it can go on
    with pytest.raises(piper.RunError, match="is over"):
        trainer.evaluate(batches(1))

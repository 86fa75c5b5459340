"""Buffers that forward writes: one copy on each device, changed slice after slice, exported from the device that runs the first slice."""
import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import piper
import plain


class Norms(nn.Module):
    """Four layers of convolution and batch normalisation, each with its own momentum."""

    def __init__(self, channels=4):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels, momentum=0.1 * (i + 1)), nn.ReLU())
            for i in range(4))
        self.head = nn.Linear(channels, 3)

    def forward(self, images):
        for layer in self.layers:
            images = layer(images)
        return self.head(images.mean((2, 3)))


def loss(model, batch):
    return F.cross_entropy(model(batch["images"]), batch["labels"])


def batch(seed, samples=16):
    generator = torch.Generator().manual_seed(seed)
    return {"images": torch.randn(samples, 4, 5, 5, generator=generator) + seed, "labels": torch.randint(0, 3, (samples,), generator=generator)}


def captured():
    torch.manual_seed(0)
    model = Norms()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return model, piper.capture(model, batch(0), loss=loss)


def reference(model, batches, slices, seen):
    """One device that runs all slices in turn; its buffers forget the slices that the exported copy has not seen."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), **plain.settings_for(model))
    losses = []
    for one in batches:
        optimizer.zero_grad()
        total = 0.0
        for i, part in enumerate(plain.slices_of(one, slices)):
            before = [buffer.clone() for buffer in model.buffers()]
            value = loss(model, part) / slices
            value.backward()
            total += value.item()
            if i not in seen:
                for buffer, kept in zip(model.buffers(), before):
                    buffer.copy_(kept)
        optimizer.step()
        losses.append(total)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def replicas(zero):
    return piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=zero)


pp = piper.schedules
SCHEDULES = {  # schedule, slices of a step, and those that the exported copy sees
    "one device": (piper.Schedule().devices(1).split(4).place({}, devices=[0]), 4, range(4)),
    "recompute": (piper.Schedule().devices(1).split(4).place({}, devices=[0]).recompute({"layer": "*"}), 4, range(4)),
    "1f1b": (pp.one_f_one_b(ranks=2, microbatches=4), 4, range(4)),
    "zb-v": (pp.zb_v(ranks=2, microbatches=4), 4, range(4)),
    "zero 0": (replicas(0), 4, (0, 2)), "zero 1": (replicas(1), 4, (0, 2)),
    "zero 2": (replicas(2), 4, (0, 2)), "zero 3": (replicas(3), 4, (0, 2)),
    "zero 3, recompute": (replicas(3).recompute({"layer": "*"}), 4, (0, 2)),
    "1f1b, zero 3": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=3), 4, (0, 2)),
    "other devices first": (piper.Schedule().devices(2).split(2).place({}, devices=[1, 0]).replicate({}, devices=[1, 0]), 4, (0, 2)),
    "two ways": (piper.Schedule().mesh(pp=2).split(4).place({}, along="pp", stages=2, shape="two_way"), 4, (0, 1)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_running_statistics(name):
    schedule, slices, seen = SCHEDULES[name]
    model, graph = captured()
    batches = [batch(seed) for seed in range(3)]
    ours = plain.train_piper(graph, schedule, batches)
    plain.assert_equal(ours, reference(model, batches, slices, set(seen)), 1e-5)


def test_they_are_state_and_no_parameters():
    _, graph = captured()
    assert not [name for name in graph.parameters if "running" in name or "tracked" in name]
    assert " state " in graph.text()


def test_they_are_loaded():
    model, graph = captured()
    state = {name: value + 1 for name, value in model.state_dict().items()}
    with piper.Trainer(graph, replicas(3)) as trainer:
        trainer.step(batch(0))
        trainer.load_state_dict(state)
        loaded = trainer.state_dict()
    for name, value in state.items():
        assert torch.equal(loaded[name], value), name


def test_an_order_against_that_of_the_slices_is_refused():
    _, graph = captured()
    schedule = piper.Schedule().devices(1).split(2).place({}, devices=[0]).order({"mb": 1, "pass": "F"}, {"mb": 0, "pass": "F"})
    with pytest.raises(piper.ScheduleError, match="(?s)E303.*because both change the state of the chunk"):
        piper.compile(graph, schedule)


def test_what_depends_on_the_state_is_not_computed_again():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return x * self.weight * self.seen

    model = nn.Sequential(Counter(), nn.Linear(3, 1))
    piper.annotate_modules(model, {"layer": "0"})
    graph = piper.capture(model, (torch.randn(4, 3),), loss=lambda model, one: model(one[0]).mean())
    schedule = piper.Schedule().devices(1).place({}, devices=[0]).recompute({"layer": "*"})
    with pytest.raises(piper.CaptureError, match="E606.*cannot be computed again: it uses buffer 0.seen"):
        piper.compile(graph, schedule)


@pytest.mark.parametrize("name", ["1f1b, zero 3", "zero 3, recompute"])
def test_in_eval_mode_they_stay(name):
    """Normalised by the statistics that are there, which nobody changes: as a frozen backbone is trained."""
    schedule, slices, _ = SCHEDULES[name]
    torch.manual_seed(0)
    model = Norms()
    for layer in model.layers:
        layer[1].eval()
        nn.init.uniform_(layer[1].running_mean)
        nn.init.uniform_(layer[1].running_var, 0.5, 2)
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, batch(0), loss=loss)
    assert " state " not in graph.text()
    optimizer = torch.optim.AdamW(model.parameters(), **plain.settings_for(model))
    batches = [batch(seed) for seed in range(2)]
    ours = plain.train_piper(graph, schedule, batches)
    losses = []
    for one in batches:
        optimizer.zero_grad()
        value = loss(model, one)  # without statistics of slices a mean of means
        value.backward()
        optimizer.step()
        losses.append(value.item())
    plain.assert_equal(ours, (losses, {name: value.detach() for name, value in model.state_dict().items()}), 1e-5)


def test_diff_lists_them():
    model, _ = captured()
    with piper.Trainer(model, replicas(1), example_batch=batch(0), loss=loss) as trainer:
        found = trainer.diff(model, batch(0))
    assert found.plan["equal"], found
    assert {"layers.0.1.running_mean", "layers.3.1.running_var"} <= {one["name"] for one in found.plan["not_compared"]}

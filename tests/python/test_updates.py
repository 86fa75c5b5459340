"""Optimizers, groups of parameters and clipping against plain PyTorch, and learning rates by its schedulers."""
import copy

import pytest
import torch

import piper
import plain
import small

pp = piper.schedules
SCHEDULES = {
    "1f1b, zero 2": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2), 4),
    "dualpipev": (pp.dualpipev(ranks=2, microbatches=4), 4),
    "zero 3": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=3), 4),
    "tp 2": (piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp", parameters="*.down.weight: 1"), 2),
}


class TheirLion(torch.optim.Optimizer):
    """As in the paper."""

    def __init__(self, groups, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(groups, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                mean = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
                beta1, beta2 = group["betas"]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(group["lr"] * (mean * beta1 + parameter.grad * (1 - beta1)).sign())
                mean.mul_(beta2).add_(parameter.grad, alpha=1 - beta2)


OPTIMIZERS = {
    "adamw": (piper.AdamW(lr=1e-2, weight_decay=0.1), lambda groups: torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)),
    "nesterov": (piper.SGD(lr=1e-1, momentum=0.9, weight_decay=0.1, nesterov=True),
                 lambda groups: torch.optim.SGD(groups, lr=1e-1, momentum=0.9, weight_decay=0.1, nesterov=True)),
    "lion": (piper.Lion(lr=1e-3, weight_decay=0.1), lambda groups: TheirLion(groups, lr=1e-3, weight_decay=0.1)),
}
GROUPS = [piper.ParameterGroup("*.bias", lr_factor=0.5, weight_decay=0.0), piper.ParameterGroup("layers.0.*", lr_factor=0.0),
          piper.ParameterGroup("layers.*", lr_factor=2.0)]
BATCHES = [small.batch(seed=seed) for seed in range(3)]


def stack():
    torch.manual_seed(0)
    model = small.Stack(4).double()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return model


def their_groups(model, lr, weight_decay):
    """What GROUPS says, written down by hand."""
    out = []
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            out.append({"params": [parameter], "lr": 0.5 * lr, "weight_decay": 0.0})
        elif name.startswith("layers.0."):
            out.append({"params": [parameter], "lr": 0.0})
        else:
            out.append({"params": [parameter], "lr": 2 * lr if name.startswith("layers.") else lr})
    return out


def train_plain(model, optimizer, slices, clip_value=None):
    losses = []
    for batch in BATCHES:
        optimizer.zero_grad()
        total = 0.0
        for part in plain.slices_of(batch, slices):
            value = small.loss(model, part) / slices
            value.backward()
            total += value.item()
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_value)
        optimizer.step()
        losses.append(total)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def train_piper(optimizer, schedule, **options):
    graph = piper.capture(stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, schedule, optimizer=optimizer, **options) as trainer:
        losses = [trainer.step(batch).loss for batch in BATCHES]
        return losses, trainer.state_dict()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_equals_pytorch(kind, schedule):
    ours, theirs = OPTIMIZERS[kind]
    written, slices = SCHEDULES[schedule]
    model = stack()
    expected = train_plain(model, theirs([{"params": list(model.parameters())}]), slices)
    plain.assert_equal(train_piper(ours, written), expected, 1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_groups(kind, schedule):
    ours, theirs = OPTIMIZERS[kind]
    written, slices = SCHEDULES[schedule]
    model = stack()
    expected = train_plain(model, theirs(their_groups(model, ours.lr, ours.weight_decay)), slices)
    grouped = copy.copy(ours)
    grouped.groups = GROUPS
    got = train_piper(grouped, written)
    plain.assert_equal(got, expected, 1e-12)
    assert torch.equal(got[1]["layers.0.up.weight"], stack().layers[0].up.weight)


REPLICAS = {f"zero {zero}": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=zero), 4)
            for zero in (0, 1, 2)}
TP = (piper.Schedule().mesh(dp=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=2)
      .shard({"layer": "*"}, along="tp", parameters="*.down.weight: 1"), 4)


@pytest.mark.parametrize("written, slices", [pytest.param(*case, id=name)
                                             for name, case in {**SCHEDULES, **REPLICAS, "tp 2, zero 2": TP}.items()])
def test_clipping_by_value(written, slices):
    model = stack()
    expected = train_plain(model, torch.optim.SGD(model.parameters(), lr=0.5), slices, clip_value=0.01)
    plain.assert_equal(train_piper(piper.SGD(lr=0.5), written, clip_value=0.01), expected, 1e-12)


def test_diff_knows_groups():
    model = stack()
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"][0], optimizer=piper.AdamW(groups=GROUPS), clip_value=0.01) as trainer:
        found = trainer.diff(model, small.batch())
        assert found.equal, found


def test_state_of_lion_goes_on():
    graph = piper.capture(stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, optimizer=piper.Lion(lr=1e-3)) as trainer:
        trainer.step(BATCHES[0])
        weights, state = trainer.state_dict(), trainer.optimizer_state_dict()
        expected = trainer.step(BATCHES[1]).loss, trainer.state_dict()
    assert state["kind"] == "lion" and set(state["state"]["head.weight"]) == {"exp_avg"}
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"][0], optimizer=piper.Lion(lr=1e-3)) as trainer:
        trainer.load_state_dict(weights)
        trainer.load_optimizer_state_dict(state)
        plain.assert_equal(([trainer.step(BATCHES[1]).loss], trainer.state_dict()), ([expected[0]], expected[1]), 1e-12)


def test_decay_of_matrices_only():
    model = stack()
    names = {group.pattern for group in piper.decay_matrices_only(model)}
    assert names == {name for name, value in model.named_parameters() if value.dim() < 2} | {"embedding.weight"}
    assert all(group.weight_decay == 0.0 for group in piper.decay_matrices_only(model))


@pytest.mark.parametrize("make", [
    lambda: piper.ParameterGroup(3), lambda: piper.ParameterGroup(""), lambda: piper.ParameterGroup("x", lr_factor="2"),
    lambda: piper.AdamW(groups=[piper.ParameterGroup("x", lr_factor=-1.0)]), lambda: piper.AdamW(groups="x"),
    lambda: piper.AdamW(groups=[piper.ParameterGroup("x", weight_decay=-1.0)]), lambda: piper.AdamW(groups=["x"]),
    lambda: piper.SGD(nesterov=True), lambda: piper.SGD(nesterov=1), lambda: piper.Lion(betas=(1.0, 0.9)), lambda: piper.Lion(lr=-1.0)])
def test_refuses(make):
    with pytest.raises(piper.ScheduleError) as caught:
        make()
    assert caught.value.code == "E105" and caught.value.help


def test_a_group_without_a_parameter_is_refused():
    graph = piper.capture(stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError, match="no parameter has a name like 'layer.*'") as caught:
        piper.Trainer(graph, optimizer=piper.AdamW(groups=[piper.ParameterGroup("layer.*")]))
    assert caught.value.code == "E105" and "embedding.weight" in caught.value.help[0]


def test_any_scheduler_of_pytorch():
    theirs = torch.optim.SGD([torch.zeros(())], lr=0.5)
    expected = torch.optim.lr_scheduler.SequentialLR(
        theirs, [torch.optim.lr_scheduler.LinearLR(theirs, 0.1, total_iters=3), torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 10)], [3])
    optimizer = piper.SGD(lr=0.5)
    scheduler = piper.LRScheduler(optimizer, lambda made: torch.optim.lr_scheduler.SequentialLR(
        made, [torch.optim.lr_scheduler.LinearLR(made, 0.1, total_iters=3), torch.optim.lr_scheduler.CosineAnnealingLR(made, 10)], [3]))
    for _ in range(8):
        assert optimizer.lr == theirs.param_groups[0]["lr"]
        theirs.step()
        expected.step()
        scheduler.step()
    again = piper.SGD(lr=0.5)
    restored = piper.LRScheduler(again, torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    one = piper.LRScheduler(piper.SGD(lr=0.5), torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    one.step()
    restored.load_state_dict(one.state_dict())
    restored.step()
    assert again.lr == 0.125


def test_a_scheduler_wants_one_of_our_optimizers():
    with pytest.raises(piper.ScheduleError, match="not one of piper's"):
        piper.LRScheduler(torch.optim.SGD([torch.zeros(())], lr=1.0), torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)

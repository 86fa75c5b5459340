"""Muon against torch.optim.Muon: matrices are seen whole, whatever divides them; the rest is AdamW's."""
import inspect

import pytest
import torch
from torch.optim import _muon

import piper
import plain
import small
import test_updates as updates

pp = piper.schedules
TP = dict(along="tp", parameters="*.down.weight: 1")
SCHEDULES = {
    **updates.SCHEDULES,
    "zero 0": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp"), 4),
    "zero 1": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=1), 4),
    "dualpipe": (pp.dualpipe(ranks=2, microbatches=4), 4),
    "tp 2, zero 2": (piper.Schedule().mesh(dp=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=2)
                     .shard({"layer": "*"}, **TP), 4),
}
OURS = dict(lr=1e-2, weight_decay=0.1, adamw=("head.*",))


class Theirs:
    """As Muon's users do it: hidden matrices to one, the rest to the other."""

    def __init__(self, model, **options):
        matrices = [value for name, value in model.named_parameters() if name.startswith("layers.") and value.dim() == 2]
        chosen = {id(value) for value in matrices}
        rest = [value for value in model.parameters() if id(value) not in chosen]
        self.both = (torch.optim.Muon(matrices, lr=1e-2, weight_decay=0.1, **options),
                     torch.optim.AdamW(rest, lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95)))

    def zero_grad(self):
        for one in self.both:
            one.zero_grad()

    def step(self):
        for one in self.both:
            one.step()


@pytest.fixture
def in_float64(monkeypatch):
    """PyTorch's own iteration, without its rounding to bfloat16."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz).replace(".bfloat16()", ".clone()")
    names = dict(vars(_muon))
    exec(source, names)
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", names["_zeropower_via_newtonschulz"])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [{}, dict(nesterov=False, ns_steps=3, adjust_lr="match_rms_adamw")], ids=["usual", "other"])
def test_equals_pytorch(options, schedule, in_float64):
    written, slices = SCHEDULES[schedule]
    model = updates.stack()
    theirs = {("adjust_lr_fn" if name == "adjust_lr" else name): value for name, value in options.items()}
    expected = updates.train_plain(model, Theirs(model, **theirs), slices)
    plain.assert_equal(updates.train_piper(piper.Muon(**OURS, **options), written), expected, 1e-11)


def test_float32_is_iterated_in_bfloat16_as_pytorch_does():
    model = updates.stack().float()
    graph = piper.capture(updates.stack().float(), small.batch(), loss=small.loss)
    expected = updates.train_plain(model, Theirs(model), 1)
    with piper.Trainer(graph, optimizer=piper.Muon(**OURS)) as trainer:
        got = [trainer.step(batch).loss for batch in updates.BATCHES], trainer.state_dict()
    plain.assert_equal(got, expected, 1e-3)


def test_groups_and_the_rate_of_adamw():
    """A factor of 0 leaves the matrices of a layer, or all that AdamW updates, as they were."""
    optimizer = piper.Muon(**OURS, groups=[piper.ParameterGroup("layers.1.*", lr_factor=0.0)], adamw_lr_factor=0.0)
    _, weights = updates.train_piper(optimizer, SCHEDULES["1f1b, zero 2"][0])
    for name, before in updates.stack().state_dict().items():
        moves = name.startswith("layers.") and not name.startswith("layers.1.") and before.dim() == 2
        assert torch.equal(weights[name], before) != moves, name


def test_memory_and_who_updates_what():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    state = lambda optimizer, schedule: [row["optimizer"] for row in piper.compile(graph, schedule, optimizer=optimizer).memory().rows]
    sizes = {name: value.numel() for name, value in updates.stack().named_parameters()}
    names = piper.Muon(**OURS).matrices(updates.stack())
    assert set(names) == {f"layers.{i}.{part}.weight" for i in range(4) for part in ("up", "down")}
    matrices = sum(sizes[name] for name in names)
    assert state(piper.Muon(**OURS), updates.SCHEDULES["zero 3"][0])[0] < 0.51 * 8 * (2 * sum(sizes.values()) - matrices)  # moments are divided
    assert state(piper.Muon(**OURS), "devices(1)\nplace({}, devices=[0])\n") == [8 * (2 * sum(sizes.values()) - matrices)]


@pytest.mark.parametrize("to", ["zero 3", "tp 2", "dualpipev"])
def test_a_run_goes_on_under_another_plan(to, tmp_path):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"][0], optimizer=piper.Muon(**OURS)) as trainer:
        trainer.step(updates.BATCHES[0])
        trainer.save(tmp_path, wait=True)
        state = trainer.optimizer_state_dict()
        expected = [trainer.step(batch).loss for batch in updates.BATCHES[1:]], trainer.state_dict()
    assert set(state["state"]["layers.0.up.weight"]) == {"momentum_buffer"}
    assert set(state["state"]["head.weight"]) == {"exp_avg", "exp_avg_sq"}
    with piper.Trainer(graph, SCHEDULES[to][0], optimizer=piper.Muon(**OURS)) as trainer:
        assert trainer.resume(tmp_path).step == 1
        plain.assert_equal(([trainer.step(batch).loss for batch in updates.BATCHES[1:]], trainer.state_dict()), expected, 1e-11)
    with piper.Trainer(graph, SCHEDULES[to][0], optimizer=piper.AdamW()) as trainer, pytest.raises(piper.CheckpointError) as caught:
        trainer.resume(tmp_path)
    assert caught.value.code == "E904"


@pytest.mark.parametrize("given", [dict(ns_steps=0), dict(ns_steps=1.5), dict(adjust_lr="none"), dict(adamw="head.*"), dict(adamw=[3]),
                                   dict(momentum=1.0), dict(adamw_lr_factor=-1.0), dict(betas=(1.0, 0.9)), dict(eps=0.0)], ids=str)
def test_refuses(given):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Muon(**given)
    assert caught.value.code == "E105" and caught.value.help


def test_a_pattern_without_a_parameter_is_refused():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError, match="no parameter has a name like 'heads.*'"):
        piper.Trainer(graph, optimizer=piper.Muon(adamw=("heads.*",)))


def test_muon_of_pytorch_is_refused_with_ours_in_its_place():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError, match="Muon") as caught:
        piper.Trainer(graph, optimizer=torch.optim.Muon([torch.zeros(2, 2)], lr=0.5))
    assert "piper.Muon(lr=0.5" in caught.value.help[0]

"""Whatever is given by mistake, the answer is an error of Piper that says what to do."""
import pytest
import torch

import piper
import small

pytestmark = pytest.mark.quick

ONE = "devices(1)\nplace({}, devices=[0])\n"


@pytest.fixture(scope="module")
def graph():
    return piper.capture(small.Stack(), small.batch(), loss=small.loss)


@pytest.fixture(scope="module")
def trainer(graph):
    with piper.Trainer(graph) as made:
        yield made


def refused(call, code="E105"):
    with pytest.raises(piper.Error) as caught:
        call()
    assert caught.value.code == code and caught.value.help, str(caught.value)


OPTIMIZERS = {
    "parameters": (lambda: piper.AdamW(small.Stack().parameters()), "E105"),
    "parameters and a rate": (lambda: piper.AdamW(small.Stack().parameters(), lr=0.1), "E105"),
    "list of parameters": (lambda: piper.Muon(list(small.Stack().parameters()), lr=0.1), "E105"),
    "unknown": (lambda: piper.AdamW(learning_rate=0.1), "E104"),
    "twice": (lambda: piper.SGD(0.1, lr=0.1), "E104"),
    "groups of torch": (lambda: piper.SGD(groups=[{"params": [], "lr": 1.0}]), "E105"),
    "ema": (lambda: piper.Lion(ema="yes"), "E105"),
    "scheduler": (lambda: piper.LRScheduler(piper.SGD(), 3), "E105"),
    "arguments of a scheduler": (lambda: piper.LRScheduler(piper.SGD(), torch.optim.lr_scheduler.ExponentialLR, gama=0.5), "E105"),
    "no scheduler": (lambda: piper.LRScheduler(piper.SGD(), lambda optimizer: 3), "E105"),
    "state of a scheduler": (lambda: piper.LRScheduler(piper.SGD(), torch.optim.lr_scheduler.ExponentialLR, gamma=0.5).load_state_dict({}), "E105"),
    "decay_matrices_only": (lambda: piper.decay_matrices_only(3), "E105"),
}


@pytest.mark.parametrize("wrong", OPTIMIZERS)
def test_optimizers_and_schedulers(wrong):
    refused(*OPTIMIZERS[wrong])


TRAINERS = {
    "no model": lambda graph: piper.Trainer("model"), "none": lambda graph: piper.Trainer(None), "schedule": lambda graph: piper.Trainer(graph, 5),
    "list": lambda graph: piper.Trainer(graph, [ONE]), "devices": lambda graph: piper.Trainer(graph, devices="2"),
    "cluster": lambda graph: piper.Trainer(graph, cluster=3), "callbacks": lambda graph: piper.Trainer(graph, callbacks=3),
    "backend": lambda graph: piper.Trainer(graph, backend=3), "on": lambda graph: piper.Trainer(graph, on=3),
    "kernels": lambda graph: piper.Trainer(graph, kernels=3), "kernel_cache": lambda graph: piper.Trainer(graph, kernels="inductor", kernel_cache=3),
    "accumulate": lambda graph: piper.Trainer(graph, accumulate="2"), "compile": lambda graph: piper.compile(3, ONE),
    "compiled schedule": lambda graph: piper.compile(graph, 3), "costs": lambda graph: piper.compile(graph, ONE, costs=3),
    "compare": lambda graph: piper.compare(graph, [ONE], "h100"), "search": lambda graph: piper.search(graph, "h100", "2"),
    "searched model": lambda graph: piper.search(3, "h100", 2), "fix": lambda graph: piper.search(graph, "h100", 2, fix="mesh(tp=2)"),
    "load_model": lambda graph: piper.load_model(3), "load": lambda graph: piper.Schedule.load(3), "metrics file": lambda graph: piper.callbacks.MetricsFile(3),
    "capture": lambda graph: piper.capture(3, small.batch()), "name": lambda graph: piper.capture(small.Stack(), small.batch(), loss=small.loss, name=3),
    "annotate": lambda graph: piper.annotate(3), "experts": lambda graph: piper.annotate("experts", experts="8"),
    "annotate_modules": lambda graph: piper.annotate_modules(3, {"layer": "layers.*"}),
    "scopes": lambda graph: piper.annotate_modules(small.Stack(), "layers.*"), "pattern": lambda graph: piper.annotate_modules(small.Stack(), {"layer": 3}),
    "samples": lambda graph: piper.Samples(3, sequence=8, batch=2), "source": lambda graph: piper.Samples([piper.Source([3])], sequence=8, batch=2),
    "sharded": lambda graph: piper.Trainer(graph, sharded="yes"), "ranks": lambda graph: piper.schedules.one_f_one_b(ranks="2", microbatches=2),
    "timeline": lambda graph: piper.schedules.timeline(3, ranks=2, microbatches=2),
    "fetched": lambda graph: piper.FetchAhead(3),
}


@pytest.mark.parametrize("wrong", TRAINERS)
def test_what_trainers_and_plans_are_made_of(wrong, graph):
    refused(lambda: TRAINERS[wrong](graph))


def batch(**changes):
    return {**small.batch(), **changes}


BATCHES = {
    "text": "tokens", "none": None, "number": 3, "numbers": [1, 2], "missing": {"tokens": small.batch()["tokens"]}, "too many": batch(more=torch.zeros(8)),
    "no tensor": batch(targets=3), "lists": {name: value.tolist() for name, value in small.batch().items()},
}


@pytest.mark.parametrize("wrong", BATCHES)
def test_batches(wrong, trainer):
    for call in (lambda: trainer.step(BATCHES[wrong]), lambda: trainer.evaluate([BATCHES[wrong]]), lambda: list(trainer.train([BATCHES[wrong]]))):
        refused(call, "E605")


def test_a_loss_that_is_no_function():
    refused(lambda: piper.capture(small.Stack(), small.batch(), loss=3), "E605")
    refused(lambda: piper.capture(small.Stack(), 3, loss=small.loss), "E605")
    refused(lambda: piper.capture(small.Stack(), {}, loss=small.loss), "E605")


STATES = {
    "number": lambda trainer: trainer.load_state_dict(3), "empty": lambda trainer: trainer.load_state_dict({}),
    "no tensor": lambda trainer: trainer.load_state_dict({**trainer.state_dict(), "head.weight": 3}),
    "optimizer, number": lambda trainer: trainer.load_optimizer_state_dict(3), "optimizer, empty": lambda trainer: trainer.load_optimizer_state_dict({}),
    "optimizer of torch": lambda trainer: trainer.load_optimizer_state_dict(torch.optim.AdamW(small.Stack().parameters()).state_dict()),
    "optimizer, entries": lambda trainer: load_changed(trainer, state={**trainer.optimizer_state_dict()["state"], "head.weight": 3}),
    "optimizer, values": lambda trainer: load_changed(trainer, state={**trainer.optimizer_state_dict()["state"],
                                                                     "head.weight": {"exp_avg": 3, "exp_avg_sq": 4}}),
    "optimizer, steps": lambda trainer: load_changed(trainer, steps="x"),
    "batches": lambda trainer: trainer.evaluate(small.batch()), "a number of batches": lambda trainer: trainer.evaluate(3),
    "iterable": lambda trainer: list(trainer.train(3)), "steps": lambda trainer: list(trainer.train([], steps="2")),
    "save": lambda trainer: trainer.save(3), "extra": lambda trainer: trainer.save("run", extra={"epoch": 1}),
    "extras": lambda trainer: trainer.save("run", extra=3), "resume": lambda trainer: trainer.resume(3),
    "optimizer": lambda trainer: setattr(trainer, "optimizer", None), "tolerance": lambda trainer: trainer.diff(small.Stack(), small.batch(), tolerance="x"),
    "diff": lambda trainer: trainer.diff(3, small.batch()),
}


def load_changed(trainer, **changes):
    trainer.load_optimizer_state_dict({**trainer.optimizer_state_dict(), **changes})


@pytest.mark.parametrize("wrong", STATES)
def test_states_and_folders(wrong, trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = trainer.state_dict()
    refused(lambda: STATES[wrong](trainer))
    assert not list(tmp_path.iterdir())
    for name, value in trainer.state_dict().items():
        assert torch.equal(value, before[name]), name

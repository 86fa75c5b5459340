"""Annotation and capture: scopes, what is recorded, what is refused and how."""
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import piper
import plain
import small


def capture(forward, **modules):
    """Of a model whose forward is given, with a linear layer `linear` and other modules; its loss is the mean of its result."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            for name, module in modules.items():
                setattr(self, name, module)

        def forward(self, x):
            return forward(self, x)

    return piper.capture(Model(), torch.zeros(4, 3), loss=lambda model, batch: model(batch).mean())


def test_scopes_from_inside():
    def forward(self, x):
        for _ in range(2):
            with piper.annotate("layer"):
                x = self.linear(x)
                with piper.annotate("inner"):
                    x = torch.tanh(x)
        return x

    assert capture(forward).chunks == ["layer.0", "layer.0.inner.0", "layer.1", "layer.1.inner.0", "model"]


def test_scopes_from_outside():
    model = small.Stack(layers=3)
    piper.annotate_modules(model, {"layer": "layers.*", "head": "head"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    assert graph.chunks == ["model", "layer.0", "layer.1", "layer.2", "head.0", "model.part2"]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_outside_encloses_inside():
    class Inner(nn.Module):
        def forward(self, x):
            with piper.annotate("inside"):
                return torch.tanh(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.inner = nn.Linear(3, 3), Inner()

        def forward(self, x):
            return self.inner(self.linear(x)).mean()

    model = Model()
    piper.annotate_modules(model, {"outside": "inner"})
    assert "outside.0.inside.0" in piper.capture(model, torch.zeros(4, 3)).chunks


def test_module_called_twice_has_two_instances():
    model = nn.Sequential(shared := nn.Linear(3, 3), nn.Tanh(), shared)
    piper.annotate_modules(model, {"layer": "0"})
    chunks = piper.capture(model, torch.zeros(4, 3), loss=lambda model, batch: model(batch).mean()).chunks
    assert [chunk for chunk in chunks if chunk.startswith("layer")] == ["layer.0", "layer.1"]


def test_pattern_without_module():
    with pytest.raises(piper.ScheduleError) as caught:
        piper.annotate_modules(small.Stack(), {"layer": "blocks.*"})
    assert caught.value.code == "E203" and "blocks.*" in caught.value.message


def test_module_that_never_runs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear.forward(x).mean()  # past the hooks

    model = Model()
    piper.annotate_modules(model, {"layer": "linear"})
    with pytest.raises(piper.CaptureError, match="linear never ran"):
        piper.capture(model, torch.zeros(4, 3))


def test_on_the_meta_device():
    with torch.device("meta"):
        model = small.Stack()
    real = piper.capture(small.Stack(), small.batch(), loss=small.loss)
    graph = piper.capture(model, small.batch(), loss=small.loss)
    assert graph.text() == real.text()
    assert "sound" in piper.compile(graph, "devices(1)\nplace({}, devices=[0])\n").check()
    with pytest.raises(piper.CaptureError, match="meta device"):
        piper.Trainer(graph)


def same_as_plain(model, batch, loss, slices=2, steps=3):
    graph = piper.capture(model, batch, loss=loss)
    schedule = piper.Schedule().devices(1).split(slices).place({}, devices=[0])
    ours = plain.train_piper(graph, schedule, [batch] * steps)
    plain.assert_equal(ours, plain.train(model, [batch] * steps, slices, loss), 1e-5)


def test_code_runs_once_for_each_size_of_slices():
    """Whatever is compiled then: schedules with the same slices share what was recorded."""
    seen = []

    def loss(model, batch):
        seen.append(len(batch["tokens"]))
        return small.loss(model, batch)

    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(samples=8), loss=loss)
    for schedule in (piper.schedules.one_f_one_b(ranks=2, microbatches=4), piper.schedules.dualpipev(ranks=2, microbatches=4)):
        piper.compile(graph, schedule)
    assert sorted(seen) == [2, 4], "those of the schedules, and twice that, to see what grows"
    piper.compile(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=8))
    assert sorted(seen) == [1, 2, 4]


def test_a_model_that_was_changed_is_recorded_again():
    """In all sizes of slices, so that no plan is made of two models."""
    class Model(small.Stack):
        scale = 1.0

        def forward(self, tokens):
            return super().forward(tokens) * self.scale

    model, batch = Model(), small.batch(samples=8)
    graph = piper.capture(model, batch, loss=small.loss)
    schedule = "devices(1)\nsplit(batch, parts=2, as=mb)\nplace({}, devices=[0])\n"

    def loss():
        with piper.Trainer(graph, schedule) as trainer:
            return trainer.step(batch).loss

    assert loss() == pytest.approx(small.loss(model, batch).item(), rel=1e-5)
    model.scale = 2.0
    assert loss() == pytest.approx(small.loss(model, batch).item(), rel=1e-5)


def test_constants_and_scalars():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.factor = torch.tensor([1.0, 2.0, 3.0])  # neither parameter nor buffer

        def forward(self, x):
            table = torch.tensor([0.5, 0.25, 2.0])
            return 3 * self.linear(x) * self.factor * table + torch.arange(3) / 7

    same_as_plain(Model(), (torch.randn(4, 3),), lambda model, batch: model(batch[0]).square().mean())


def test_operators_that_name_dimensions_of_a_number():
    """A number has none, and PyTorch accepts 0 and -1."""
    capture(lambda self, x: self.linear(x) * x.sum().transpose(0, -1).softmax(0).cumsum(-1))


def test_a_loss_of_one_row():
    capture(lambda self, x: self.linear(x) + F.nll_loss(self.linear(x).sum(0), torch.tensor(1)))


def test_tensor_made_from_numbers_and_written():
    def forward(model, batch):
        sums = torch.tensor([0.0, 0.0, 0.0])
        sums += model(batch[0]).sum(0)
        return sums.square().mean()

    same_as_plain(nn.Linear(3, 3), (torch.randn(4, 3),), forward, slices=2, steps=3)


def test_buffers_that_forward_writes():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    same_as_plain(model, (torch.randn(8, 3),), lambda model, batch: model(batch[0]).square().mean())


def test_tied_weights():
    model = small.Stack(dim=16)
    model.head.weight = model.embedding.weight
    same_as_plain(model, small.batch(), small.loss)


def test_module_with_two_names_is_as_before():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(3, 3)
            self.layers = nn.ModuleList([self.one, nn.Linear(3, 3)])

        def forward(self, x):
            return self.layers[1](self.layers[0](self.one(x)))

    model = Model()
    before = {name: (id(value), value.detach().clone()) for name, value in model.state_dict(keep_vars=True).items()}
    same_as_plain(model, (torch.randn(4, 3),), lambda model, batch: model(batch[0]).square().mean())
    for name, value in model.state_dict(keep_vars=True).items():
        assert id(value) == before[name][0] and torch.equal(value, before[name][1]), name


def test_frozen_parameters_stay():
    model = small.Stack()
    model.embedding.weight.requires_grad_(False)
    graph = piper.capture(model, small.batch(), loss=small.loss)
    before = model.embedding.weight.clone()
    with piper.Trainer(graph) as trainer:
        trainer.step(small.batch())
        state = trainer.state_dict()
    assert torch.equal(state["embedding.weight"], before) and not torch.equal(state["head.weight"], model.head.weight)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_is_run_through(reentrant):
    class Model(small.Stack):
        def forward(self, tokens):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant) if self.checkpointed else layer(x)
            return self.head(x)

    model = Model()
    texts = []
    for model.checkpointed in (False, True):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            texts.append(piper.capture(model, small.batch(), loss=small.loss).operators())
        assert ["recompute" in str(note.message) for note in said] == [True] * model.checkpointed
    assert texts[0] == texts[1]


def refusals():
    def item(self, x):
        y = self.linear(x)
        with piper.annotate("layer"):
            return y * y.sum().item()

    def branch(self, x):
        y = self.linear(x)
        if y.sum() > 0:
            y = -y
        return y

    def nonzero(self, x):
        return self.linear(x)[self.linear(x) > 0]

    def numpy(self, x):
        return self.linear(x) * float(self.linear(x).detach().numpy().sum())

    return [item, branch, nonzero, numpy]


@pytest.mark.parametrize("forward", refusals(), ids=lambda forward: forward.__name__)
def test_data_dependence_is_refused_with_its_line(forward):
    with pytest.raises(piper.CaptureError) as caught:
        capture(forward)
    assert caught.value.place.file == __file__
    lines = open(__file__).read().splitlines()
    first = forward.__code__.co_firstlineno
    assert first < caught.value.place.line <= first + 5, lines[caught.value.place.line - 1]
    if forward.__name__ != "numpy":
        assert caught.value.code == "E601"


def test_a_refusal_as_it_is_printed(golden):
    source = "def forward(self, x):\n    y = self.linear(x)\n    return y[y > 0].mean()\n"
    import linecache

    linecache.cache["model.py"] = (len(source), None, source.splitlines(True), "model.py")
    scope = {}
    exec(compile(source, "model.py", "exec"), scope)
    with pytest.raises(piper.CaptureError) as caught:
        capture(scope["forward"])
    golden("E601_index.txt", str(caught.value))


def compiled(loss, *batch):
    graph = piper.capture(nn.Linear(3, 3), batch, loss=loss)
    return piper.compile(graph, "devices(1)\nplace({}, devices=[0])\n")


def test_kernel_that_cannot_be_tried_is_refused_before_it_runs(golden):
    with pytest.raises(piper.CaptureError) as caught:
        compiled(lambda model, batch: torch.repeat_interleave(model(batch[0]), batch[1], 0, output_size=6).mean(), torch.randn(4, 3),
                 torch.tensor([1, 2, 1, 2]))
    golden("E609_not_tried.txt", str(caught.value))


def test_sizes_that_depend_on_numbers_without_saying_so_are_refused():
    """PyTorch has no rule for `_unique` and takes the size of what it gives for zeros."""
    with pytest.raises(piper.CaptureError) as caught:
        compiled(lambda model, batch: model(batch[0]).mean() + torch._unique(batch[1])[0].sum(), torch.randn(4, 3), torch.arange(4))
    assert caught.value.code in ("E601", "E609") and "_unique" in str(caught.value)


@pytest.mark.parametrize("function", [F.mse_loss, F.smooth_l1_loss, F.binary_cross_entropy, F.soft_margin_loss], ids=lambda f: f.__name__)
def test_losses_in_storages_of_another_size(function):
    model = nn.Sequential(nn.Linear(3, 8), nn.Sigmoid())
    same_as_plain(model, (torch.randn(4, 3), torch.rand(4, 8).round()), lambda model, batch: function(model(batch[0]), batch[1]))


def test_gradient_that_is_written_after_it_is_made():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.least = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return torch.maximum(self.least, x)

    same_as_plain(Model(), (torch.randn(4, 3),), lambda model, batch: model(batch[0].sum(0)).square().mean())


def test_parameter_that_an_earlier_scope_only_looks_at():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.linear = nn.Parameter(torch.randn(1, 3)), nn.Linear(3, 3)

        def forward(self, x):
            with piper.annotate("layer"):
                token = self.token.expand(x.shape[0], -1)
            with piper.annotate("layer"):
                return self.linear(x * token)

    same_as_plain(Model(), (torch.randn(4, 3),), lambda model, batch: model(batch[0]).square().mean())


def test_results_without_elements():
    """Statistics of a norm that does not compute any, and parts that are empty."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, affine=True, track_running_stats=False), nn.Linear(5, 2))

    def some(model, batch):
        x = torch.cat([batch[0][:, :0], model[0](batch[0])], 1)
        y = F.batch_norm(x, torch.zeros(5), torch.ones(5), model[1].weight, model[1].bias, training=False)
        y[:, :0] = 1.0
        return model[2](y).square().mean()

    same_as_plain(model, (torch.randn(4, 3),), some)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    model = kind(3, 4, num_layers=2, batch_first=True, bidirectional=True)
    enabled = torch._C._get_mkldnn_enabled()
    same_as_plain(model, (torch.randn(4, 5, 3),), lambda model, batch: model(batch[0])[0].square().mean())
    assert torch._C._get_mkldnn_enabled() == enabled


def test_counts_of_known_length():
    def some(model, batch):
        y = model(batch[0])
        return (y.softmax(-1).mean(0) * torch.bincount(y.argmax(-1), minlength=3)).sum() + torch.bincount(
            y.argmax(-1), weights=batch[0][:, 0], minlength=3).sum()

    same_as_plain(nn.Linear(3, 3), (torch.randn(4, 3),), some)


def test_counts_of_unknown_length_are_refused_with_the_way_out():
    with pytest.raises(piper.CaptureError) as caught:
        capture(lambda self, x: self.linear(x) * torch.bincount(self.linear(x).argmax(-1)).sum())
    assert caught.value.code == "E601" and "torch.bincount(x, minlength=n)" in caught.value.help[1]


def test_classes_of_unknown_number_are_refused_with_the_way_out():
    with pytest.raises(piper.CaptureError) as caught:
        capture(lambda self, x: self.linear(x) * F.one_hot(self.linear(x).argmax(-1)).sum())
    assert caught.value.code == "E601" and "num_classes=n" in caught.value.help[-1]
    capture(lambda self, x: self.linear(x) * F.one_hot(self.linear(x).argmax(-1), num_classes=3))


def test_counts_that_do_not_fit_fail_when_they_come():
    some = lambda model, batch: model(batch[0]).mean() * torch.bincount(batch[1], minlength=3).sum()
    batch = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])
    with piper.Trainer(piper.capture(nn.Linear(3, 3), batch, loss=some)) as trainer:
        trainer.step(batch)
        with pytest.raises(piper.RunError, match="out of bounds"):
            trainer.step((batch[0], torch.tensor([0, 1, 3, 1])))


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_layers_that_are_never_skipped(rate):
    def forward(self, x):
        return x if torch.rand([]) < rate else self.linear(x)

    if rate == 0:
        assert "addmm" in capture(forward).operators()
        return
    with pytest.raises(piper.CaptureError) as caught:
        capture(forward)
    assert caught.value.code == "E601"


def test_complex_numbers_inside_a_layer():
    def some(model, batch):
        with piper.annotate("layer"):
            y = torch.fft.rfft(model(batch[0]))
        with piper.annotate("layer"):
            z = torch.fft.ihfft(model(batch[0])) @ torch.complex(batch[0][:2, :2], batch[0][:2, 1:])  # conjugated; so is a product's backward
            return torch.fft.irfft(y * y, n=3).square().mean() + (y.conj().imag * 2).sum() + (z * z).abs().mean()

    same_as_plain(nn.Linear(3, 3), (torch.randn(4, 3),), some)


def test_failing_code_keeps_its_exception():
    def forward(self, x):
        with piper.annotate("layer"):
            raise KeyError("weights")

    with pytest.raises(piper.CaptureError) as caught:
        capture(forward)
    assert caught.value.code == "E605" and "layer.0, forward: KeyError" in caught.value.message
    assert isinstance(caught.value.__cause__, KeyError)


def test_interrupt_passes_through():
    def forward(self, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(forward)


def test_parameter_without_gradient(golden):
    with pytest.raises(piper.CaptureError) as caught:
        capture(lambda self, x: self.linear(x), unused=nn.Linear(2, 2))
    golden("E608_unused.txt", str(caught.value))


def test_changing_a_foreign_tensor_is_refused():
    counter = torch.zeros(3)

    def forward(self, x):
        counter.add_(1)
        return self.linear(x) * counter

    with pytest.raises(piper.CaptureError) as caught:
        capture(forward)
    assert caught.value.code == "E604" and torch.equal(counter, torch.zeros(3))


class Converted(nn.Linear):
    """Converts itself in forward, as routers of transformers do."""

    def __init__(self, dtype):
        super().__init__(3, 3)
        self.dtype = dtype

    def forward(self, x):
        self.to(self.dtype)
        return super().forward(x.to(self.dtype))


def test_a_conversion_that_changes_nothing_does_nothing():
    convert = nn.Module._apply
    same_as_plain(Converted(torch.float32), (torch.randn(4, 3),), lambda model, batch: model(batch[0]).square().mean())
    assert nn.Module._apply is convert


def test_a_conversion_while_the_model_runs_is_refused_with_the_way_out():
    model, batch, some = Converted(torch.float64), (torch.randn(4, 3),), lambda model, batch: model(batch[0]).square().mean()
    with pytest.raises(piper.CaptureError) as caught:
        piper.capture(model, batch, loss=some)
    assert caught.value.code == "E605" and "weight of a Converted, float32 on cpu to float64 on cpu" in str(caught.value)
    some(model, batch)  # run once before, as the help says
    piper.capture(model, batch, loss=some)


def test_loss_must_be_one_number():
    with pytest.raises(piper.CaptureError, match="it must be one number"):
        piper.capture(nn.Linear(3, 3), torch.zeros(4, 3))


def test_batch_of_something_else():
    with pytest.raises(piper.CaptureError, match="tensors only"):
        piper.capture(nn.Linear(3, 3), {"input": torch.zeros(4, 3), "flag": True})
    with pytest.raises(piper.CaptureError, match="first dimension"):
        piper.capture(nn.Linear(3, 3), (torch.zeros(4, 3), torch.zeros(3)))


def test_eager_code_is_as_before_after_a_failed_capture():
    with pytest.raises(piper.CaptureError):
        capture(lambda self, x: self.linear(x)[x > 0])
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and type(torch.empty(1)) is torch.Tensor

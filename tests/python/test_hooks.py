"""Hooks on gradients: captured to the bit of plain PyTorch, or refused. None is left out."""
import pytest
import torch

import piper
import plain
import schedules
import small


class Hooked(small.Stack):
    """Something happens to what enters the head."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.act(x))


def annotated(model):
    piper.annotate_modules(model, {"layer": "layers.*"})
    return model


def with_parameter_hooks():
    model = annotated(small.Stack())
    rows = (torch.arange(11) % 2)[:, None]
    model.head.weight.register_hook(lambda gradient: gradient * 0.1)
    model.embedding.weight.register_hook(lambda gradient: gradient * rows)
    model.layers[1].up.bias.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    return model


def with_tensor_hook():
    def act(x):
        x.register_hook(lambda gradient: gradient * 0.5)
        return x

    return annotated(Hooked(act))


def with_hook_on_tied_weights():
    model = annotated(small.Stack())
    model.head.weight = model.embedding.weight
    model.head.weight.register_hook(lambda gradient: gradient.clamp(-1e-2, 1e-2))
    return model


def with_saved_tensor_hooks():
    """Values kept for backward lose digits on their way, which is seen in gradients."""

    def act(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.bfloat16(), lambda packed: packed.float()):
            return torch.tanh(x).square()

    return annotated(Hooked(act))


CAPTURED = [with_parameter_hooks, with_tensor_hook, with_hook_on_tied_weights, with_saved_tensor_hooks]


def mean_of_gradients(model, batches, slices):
    """As plain.train, but hooks see the gradient of a slice as it is, and the mean is taken afterwards."""
    model = model.train()
    optimizer = torch.optim.AdamW(model.parameters(), **plain.settings_for(model))
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        values = [small.loss(model, part) for part in plain.slices_of(batch, slices)]
        for value in values:
            value.backward()
        for parameter in model.parameters():
            parameter.grad /= slices
        optimizer.step()
        losses.append(sum(value.item() for value in values) / slices)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
@pytest.mark.parametrize("title", ["1f1b, zero 1", "dualpipev, zero 2"])
def test_captured(make, title):
    schedule, slices = schedules.dense()[title]
    torch.manual_seed(1)
    model = make()
    batches = [small.batch(seed=seed) for seed in range(3)]
    ours = plain.train_piper(piper.capture(model, batches[0], loss=small.loss), schedule, batches)
    plain.assert_equal(ours, mean_of_gradients(model, batches, slices), 1e-5)  # changes the model


def test_hooks_matter_here():
    """Otherwise the comparison above would say nothing."""
    for make in CAPTURED:
        torch.manual_seed(1)
        hooked = make()
        small.loss(hooked, small.batch()).backward()
        found = {name: parameter.grad.clone() for name, parameter in hooked.named_parameters()}
        torch.manual_seed(1)
        bare = make()
        for parameter in bare.parameters():
            parameter._backward_hooks = None
        if isinstance(bare, Hooked):
            bare.act = (lambda x: torch.tanh(x).square()) if make is with_saved_tensor_hooks else lambda x: x
        small.loss(bare, small.batch()).backward()
        assert any(not torch.equal(found[name], parameter.grad) for name, parameter in bare.named_parameters()), make.__name__


def refused(model, match, **options):
    with pytest.raises(piper.CaptureError, match=match) as caught:
        piper.capture(model, small.batch(), loss=small.loss, **options)
    assert caught.value.code == "E610"
    return caught.value


def test_hook_that_returns_nothing_is_refused(golden):
    model = small.Stack()
    seen = []
    model.head.weight.register_hook(seen.append)
    golden("E610_returns_nothing.txt", str(refused(model, "returns nothing")))


def test_hook_in_forward_that_returns_nothing_is_refused():
    refused(Hooked(lambda x: x.register_hook(lambda gradient: None) and x), "returns nothing")


def test_retain_grad_is_refused(golden):
    def act(x):
        x.retain_grad()
        return x

    golden("E610_retain_grad.txt", str(refused(Hooked(act), "retain_grad")))


def test_hook_of_a_node_is_refused():
    def act(x):
        x.grad_fn.register_hook(lambda inputs, outputs: None)
        return x

    refused(Hooked(act), "of the autograd graph has a hook")


def test_hook_after_accumulation_is_refused():
    model = small.Stack()
    handle = model.head.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    refused(model, "head.weight")
    handle.remove()
    piper.capture(model, small.batch(), loss=small.loss)


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hook_of_a_module_is_refused(register):
    model = small.Stack()
    handle = getattr(model.layers[0], register)(lambda *_: None)
    refused(model, "layers.0")
    handle.remove()
    piper.capture(model, small.batch(), loss=small.loss)


def test_backward_hook_of_all_modules_is_refused():
    handle = torch.nn.modules.module.register_module_full_backward_hook(lambda *_: None)
    try:
        refused(small.Stack(), "of the autograd graph has a hook")
    finally:
        handle.remove()


def test_hook_of_an_accumulator_is_refused():
    model = small.Stack()
    accumulator = model.head.weight.expand_as(model.head.weight).grad_fn.next_functions[0][0]  # as DistributedDataParallel does it
    accumulator.register_hook(lambda *_: None)
    refused(model, "head.weight")


def test_register_hook_is_pytorchs_own_afterwards():
    before = torch.Tensor.register_hook
    piper.capture(small.Stack(), small.batch(), loss=small.loss)
    assert torch.Tensor.register_hook is before


def test_parameter_used_past_its_module_is_refused():
    model = small.Stack()
    weight = model.head.weight
    with pytest.raises(piper.CaptureError, match="head.weight is used past the module") as caught:
        piper.capture(model, small.batch(), loss=lambda model, batch: small.loss(model, batch) + weight.square().mean())
    assert caught.value.code == "E604"

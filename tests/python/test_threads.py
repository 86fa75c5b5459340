"""Operators that PyTorch cannot run on several threads at a time, under devices that are threads; and that there are no others."""
import copy
import threading
import warnings

import pytest
import torch
import torch.nn as nn

import operators
import piper
import plain


class Depthwise(nn.Module):
    """Large enough for two threads to meet in it."""

    def __init__(self, channels=256):
        super().__init__()
        self.mix = nn.Conv1d(channels, channels, 4, padding=3, groups=channels)
        self.head = nn.Linear(channels, 1)

    def forward(self, x):
        return self.head(self.mix(x).mean(2))


def loss(model, batch):
    return model(batch[0]).square().mean()


def test_depthwise_convolutions():
    torch.manual_seed(0)
    model = Depthwise()
    batches = [(torch.randn(16, 256, 256),) for _ in range(4)]
    graph = piper.capture(model, batches[0], loss=loss)
    schedule = piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = plain.train_piper(graph, schedule, batches)
    turns = any("take turns with depthwise convolutions" in str(warning.message) for warning in said)
    assert turns == torch.backends.mkldnn.is_acl_available()
    plain.assert_equal(first, plain.train(model, batches, 4, loss), 1e-5)
    for _ in range(2):
        again = plain.train_piper(graph, schedule, batches)
        assert again[0] == first[0] and all(torch.equal(again[1][name], value) for name, value in first[1].items())


def numbers(model):
    """Loss and gradients."""
    value = operators.loss(model, operators.BATCH)
    return [value.detach(), *torch.autograd.grad(value, list(model.parameters()))]


def differ(models, calls):
    """Whether threads that compute at the same time, one for each model, get other bits than one thread."""
    expected = [numbers(model) for model in models]
    together, different = threading.Barrier(len(models)), []

    def repeat(model, alone):
        together.wait()
        for _ in range(calls):
            if not all(torch.equal(a, b) for a, b in zip(numbers(model), alone)):
                different.append(model)

    threads = [threading.Thread(target=repeat, args=pair) for pair in zip(models, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bool(different)


def other_numbers(model):
    """The same with other weights, so that what two threads mix up is seen; as it is, if the operator cannot take others."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for value in other.parameters():
            value.mul_(0.75)
    return copy.deepcopy(model) if operators.unusable(other) else other


def wrong_together(entry, most, calls):
    """How many samples were tried, and whether one came out differently."""
    tried = 0
    with operators.quiet():
        for sample in operators.samples(entry, most):
            model = operators.Operator(entry, sample)
            if operators.unusable(model):
                continue
            tried += 1
            if differ([model, other_numbers(model)], calls):
                return tried, True
    return tried, False


def known(name):
    """Those that devices take turns with, on this machine (src/capture/program/one_at_a_time.cc)."""
    return torch.backends.mkldnn.is_acl_available() and name.startswith("nn.functional.conv")


class Large(nn.Module):
    """Of a size at which libraries take their own ways."""

    def __init__(self, layer, *sizes):
        super().__init__()
        self.layer = layer
        self.input = nn.Parameter(torch.randn(*sizes))

    def forward(self, _):
        out = self.layer(self.input)
        return (out[0] if isinstance(out, tuple) else out).square().mean()


LARGE = {
    "conv1d": lambda: Large(nn.Conv1d(32, 32, 4, padding=3), 4, 32, 128),
    "conv2d": lambda: Large(nn.Conv2d(16, 16, 3), 2, 16, 32, 32),
    "conv2d, groups": lambda: Large(nn.Conv2d(16, 16, 3, groups=4), 2, 16, 32, 32),
    "conv3d": lambda: Large(nn.Conv3d(4, 4, 3), 2, 4, 8, 16, 16),
    "transposed conv2d": lambda: Large(nn.ConvTranspose2d(16, 16, 3, stride=2), 2, 16, 16, 16),
    "linear": lambda: Large(nn.Linear(256, 256), 64, 256),
    "lstm": lambda: Large(nn.LSTM(64, 64, batch_first=True), 4, 16, 64),
    "attention": lambda: Large(nn.TransformerEncoderLayer(64, 4, dropout=0.0, batch_first=True), 4, 64, 64),
    "batch norm": lambda: Large(nn.BatchNorm2d(32), 4, 32, 16, 16),
    "pool": lambda: Large(nn.MaxPool2d(2), 4, 32, 32, 32),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_layers_on_two_threads_at_once(name):
    torch.manual_seed(0)
    assert not differ([LARGE[name](), LARGE[name]()], calls=20)


@pytest.mark.long
def test_all_operators_on_two_threads_at_once():
    """By which one_at_a_time.cc has nothing to add on this kind of machine."""
    entries = operators.database()
    found = [(operators.title(entry), *wrong_together(entry, most=1, calls=20)) for entry in entries]
    tried = [name for name, count, _ in found if count]
    print(f"{len(tried)} of {len(entries)} operators on two threads at once, {sum(count for _, count, _ in found)} samples")
    assert len(tried) > 300
    assert not [name for name, _, wrong in found if wrong and not known(name)]

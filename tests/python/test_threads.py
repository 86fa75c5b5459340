"""Operators that PyTorch cannot run on several threads at a time, under devices that are threads."""
import warnings

import torch
import torch.nn as nn

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

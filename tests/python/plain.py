"""Training in plain PyTorch, as Piper promises to equal it: the slices of a batch one after the other, gradients averaged."""
import copy

import torch

import piper


def slices_of(batch, count):
    if isinstance(batch, dict):
        cut = {name: tensor.chunk(count) for name, tensor in batch.items()}
        return [{name: parts[i] for name, parts in cut.items()} for i in range(count)]
    cut = [tensor.chunk(count) for tensor in batch]
    return [tuple(parts[i] for parts in cut) for i in range(count)]


def settings_for(model):
    """Of AdamW. A first update is lr * g / (|g| + eps), so where gradients of 1e-3 sum up to g = 4e-9 the rounding of float32 decides about
    it, if eps is not far above: with 1e-8 plain PyTorch differs from itself in float64 by 1e-4, with 1e-5 by 2e-6."""
    double = next(model.parameters()).dtype == torch.float64
    return dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8 if double else 1e-5, weight_decay=0.1)


def to(device, batch):
    if isinstance(batch, dict):
        return {name: tensor.to(device) for name, tensor in batch.items()}
    return tuple(tensor.to(device) for tensor in batch)


def train(model, batches, slices, loss, device="cpu"):
    """Losses of all steps, and the weights after them. The model itself does not change."""
    model = copy.deepcopy(model).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), **settings_for(model))
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        total = 0.0
        for part in slices_of(to(device, batch), slices):
            value = loss(model, part) / slices
            value.backward()
            total += value.item()
        optimizer.step()
        losses.append(total)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def train_piper(graph, schedule, batches, **options):
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(**settings_for(graph.module)), **options) as trainer:
        losses = [trainer.step(batch).loss for batch in batches]
        return losses, trainer.state_dict(), trainer.plan


def worst(ours, theirs):
    """The largest error of losses and weights, as in the equality matrix max|a-b| / max|b|, and where it is."""
    out = (0.0, "")
    for step, (a, b) in enumerate(zip(ours[0], theirs[0], strict=True)):
        out = max(out, (abs(a - b) / abs(b), f"loss {step}"))
    assert ours[1].keys() == theirs[1].keys()
    for name, value in theirs[1].items():
        if value.is_floating_point():
            largest = value.double().abs().max().item()
            out = max(out, ((ours[1][name].double() - value.double().cpu()).abs().max().item() / (largest or 1.0), name))
        else:
            assert torch.equal(ours[1][name], value.cpu()), name
    return out


def assert_equal(ours, theirs, within):
    difference, where = worst(ours, theirs)
    assert difference < within, f"{where} by {difference:.1e}"

"""Causal language models of transformers for tests: made of a configuration, captured, and batches for them."""
import pytest
import torch

import piper

transformers = pytest.importorskip("transformers")
from piper.integrations import transformers as integration  # noqa: E402

transformers.logging.set_verbosity_error()

WORDS = 62


def build(config, dtype=torch.float32, attention="sdpa"):
    """Experts are the model's own loop over them."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
    if any(integration._is_experts(module) for module in model.modules()):
        model.set_experts_implementation("eager")
    return model.train()


def batches(steps=5):
    generator = torch.Generator().manual_seed(2)
    out = []
    for _ in range(steps):
        ids = torch.randint(0, WORDS, (8, 16), generator=generator)
        out.append({"input_ids": ids, "labels": ids})
    return out


def loss(model, batch):
    return model(**batch, use_cache=False).loss


def precise_loss(model, batch):
    """In the type of the model: transformers' own is computed in float32, of whose last digits nothing can be said."""
    scores = model(input_ids=batch["input_ids"], use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"][:, 1:].flatten())


def capture(model, batch=None, loss=loss, **options):
    integration.use(model)
    integration.annotate(model)
    return piper.capture(model, batch or batches(1)[0], loss=loss, **options)

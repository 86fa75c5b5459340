"""transformers models as they are: a causal attention without explicit mask, and experts in static slots, which `shard` can divide.

    from piper.integrations import transformers as piper_transformers

    piper_transformers.use(model)                        # before capture
    piper_transformers.annotate(model)                   # scopes `layer` and, in mixtures of experts, `experts`
    graph = piper.capture(model, {"input_ids": ids, "labels": ids})

Written for transformers 5.22.
"""
from __future__ import annotations

import math
from typing import Optional

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..annotation import annotate as scope
from ..annotation import annotate_modules, scope_name
from ..errors import CaptureError

CAUSAL = "piper_causal"
SLOTS = "piper_slots"


def use(model: torch.nn.Module, *, experts: bool = True, attention: bool = True, capacity_factor: Optional[float] = None) -> None:
    """Makes the model use `piper_causal` attention and, in mixtures of experts, `piper_slots`.

    `capacity_factor`: an expert takes at most capacity_factor * tokens * top_k / experts choices of a slice; what does not fit is dropped.
    Default: as many slots as tokens, so nothing is ever dropped, at the price of experts / top_k times the arithmetic.
    """
    config = model.config
    if attention:
        window = getattr(config, "sliding_window", None)
        if window is not None and getattr(config, "use_sliding_window", True):
            raise _refused(f"the model has a sliding window of {window}, which causal attention without a mask does not have",
                           "leave its attention as it is: use(model, attention=False)")
        model.set_attn_implementation(CAUSAL)
    modules = [module for module in model.modules() if _is_experts(module)]
    if experts and modules:
        model.set_experts_implementation(SLOTS)
        for module in modules:
            module.marks_scope = True
            module.capacity_factor = capacity_factor


def annotate(model: torch.nn.Module, **scopes) -> None:
    """Scopes `layer`, and `experts` where there are some; more, or other names, as for annotate_modules."""
    names = dict(model.named_modules())
    lists = [name for name, module in names.items() if isinstance(module, torch.nn.ModuleList) and name.rsplit(".", 1)[-1] in ("layers", "h")]
    if len(lists) != 1:
        raise _refused("the list of the model's layers was not found", 'piper.annotate_modules(model, {"layer": "..."})')
    chosen = {"layer": lists[0] + ".*"}
    experts = [name for name, module in names.items() if _is_experts(module)]
    if experts:
        chosen["experts"] = experts
    annotate_modules(model, {**chosen, **scopes})


def _is_experts(module: torch.nn.Module) -> bool:
    return hasattr(module, "gate_up_proj") and hasattr(module, "down_proj") and hasattr(module, "num_experts")


def slots(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """Experts on values [experts, slots, width]: shapes depend on nothing but the number of tokens.

    Slots are given in the order (choice, token). Equal to the model's own loop over experts, if nothing is dropped.
    """
    tokens, width = hidden_states.shape
    choices, experts = top_k_index.shape[-1], self.num_experts
    factor = getattr(self, "capacity_factor", None)
    capacity = tokens if factor is None else min(tokens, math.ceil(factor * tokens * choices / experts))
    expert = top_k_index.t().reshape(-1)
    number = F.one_hot(expert, experts).cumsum(0).gather(1, expert[:, None]).squeeze(1) - 1
    source = torch.arange(tokens, device=hidden_states.device).repeat(choices)
    if factor is None:
        slot = expert * capacity + number
        given = hidden_states.new_zeros(experts * capacity, width).index_copy(0, slot, hidden_states[source])
    else:  # one more row, for what is dropped
        slot = torch.where(number < capacity, expert * capacity + number, experts * capacity)
        given = hidden_states.new_zeros(experts * capacity + 1, width).index_copy(0, slot, hidden_states[source])[:-1]
    taken = _run_experts(self, given.view(experts, capacity, width)).reshape(experts * capacity, width)
    if factor is not None:
        taken = torch.cat([taken, taken.new_zeros(1, width)])
    weights = top_k_weights.t().reshape(-1, 1).to(taken.dtype)
    return (taken[slot] * weights).view(choices, tokens, width).sum(0)


def _run_experts(self, given: torch.Tensor) -> torch.Tensor:
    with scope(scope_name(self, "experts"), experts=self.num_experts):
        gate, up = torch.bmm(given, self.gate_up_proj.transpose(1, 2)).chunk(2, -1)
        return torch.bmm(self.act_fn(gate) * up, self.down_proj.transpose(1, 2))


def _causal_mask(*args, attention_mask=None, **kwargs):
    if attention_mask is not None:
        raise _refused("a batch with an attention_mask, that is with padding, needs a mask, which causal attention here does not have",
                       "leave attention_mask out where no sample is padded, or keep the attention: use(model, attention=False)")
    return None


def _refused(message: str, help: str) -> CaptureError:
    return CaptureError(f"\npiper: error[E605]: {message}\nhelp: {help}\n", "E605", "model code failed", message, None, (), (help,))


AttentionInterface.register(CAUSAL, sdpa_attention_forward)
AttentionMaskInterface.register(CAUSAL, _causal_mask)
ALL_EXPERTS_FUNCTIONS.register(SLOTS, slots)

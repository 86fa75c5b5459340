"""transformers models as they are: attention without a mask where the mask is plainly causal, and experts in static slots or on sorted rows,
which `shard` can divide.

    from piper.integrations import transformers as piper_transformers

    piper_transformers.use(model)                        # before capture
    piper_transformers.annotate(model)                   # scopes `layer` and, in mixtures of experts, `experts`
    graph = piper.capture(model, {"input_ids": ids, "labels": ids})

Nothing takes the place of what it does not equal: masks are compared number by number while the model is captured, experts on random
numbers before they are replaced (same_experts.py).

Written for transformers 5.22.
"""
from __future__ import annotations

import inspect
import math
import sys
import warnings
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from .. import _piper
from ..annotation import annotate as scope
from ..annotation import annotate_modules, scope_name
from ..errors import CaptureWarning, ScheduleError, refused
from ..metrics import report
from .same_experts import difference

CAUSAL = "piper_causal"
SLOTS = "piper_slots"
ROWS = "piper_rows"
LAYERS = ("layers", "layer", "h", "block", "blocks")  # what models call the list of their layers


def use(model: torch.nn.Module, *, experts: bool = True, attention: bool = True, capacity_factor: Optional[float] = None,
        dropless: bool = False, expert_load: bool = False) -> None:
    """Makes the model use `piper_causal` where it uses `sdpa` attention and, in mixtures of experts, `piper_slots` or `piper_rows`.

    Experts are replaced only if the replacement computes the same, output and gradients; otherwise the model's own code stays, and a
    CaptureWarning says so.

    `dropless`: a row for every choice of every token, sorted by expert, as transformers' `grouped_mm` has them. Nothing is dropped.
    `capacity_factor`, without it: an expert takes at most capacity_factor * tokens * top_k / experts choices of a slice; what does not fit
    is dropped. Default: as many slots as tokens, so nothing is ever dropped, at the price of experts / top_k times the arithmetic.
    `expert_load`: metrics of every step say how unevenly experts are used.
    """
    if capacity_factor is not None and not (math.isfinite(capacity_factor) and capacity_factor > 0):
        raise refused(ScheduleError, "E105", f"capacity_factor is {capacity_factor}", "a number above 0, or leave it out: nothing is dropped")
    if capacity_factor is not None and dropless:
        raise refused(ScheduleError, "E105", "dropless experts have no slots, so capacity_factor says nothing", "leave out one of the two")
    if attention:
        for part in model.modules():  # each has a config of its own, or shares one
            if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa" and _takes_attention(part):
                part.config._attn_implementation_internal = CAUSAL
    name, implementation = (ROWS, rows) if dropless else (SLOTS, slots)
    if experts and _can_be_replaced(found := _replaceable(model), implementation):
        for layer, module in enumerate(found.values()):
            module.config._experts_implementation_internal = name
            module.marks_scope = True
            module.capacity_factor = capacity_factor
            module.load_metric = f"expert_load.{layer}" if expert_load else None


def annotate(model: torch.nn.Module, **scopes) -> None:
    """Scopes `layer`, and `experts` where there are some; more, or other names, as for annotate_modules.

    A model with several lists of layers (encoder and decoder, text and vision) has all of them as `layer`, numbered in the order in which
    they run.
    """
    names = dict(model.named_modules())
    lists = [name for name, module in names.items() if isinstance(module, torch.nn.ModuleList) and name.rsplit(".", 1)[-1] in LAYERS]
    inside = tuple(name + "." for name in lists)
    lists = [name for name in lists if not name.startswith(inside)]  # of a block of layers, the block
    if not lists:
        candidates = [name for name, module in names.items() if isinstance(module, torch.nn.ModuleList)]
        raise refused(ScheduleError, "E203", "the list of the model's layers was not found",
                      'name the layers: piper.annotate_modules(model, {"layer": "' + (candidates or ["layers"])[0] + '.*"})')
    chosen = {"layer": [name + ".*" for name in lists]}
    experts = [name for name, module in names.items() if _is_experts(module)]
    if experts:
        chosen["experts"] = experts
    annotate_modules(model, {**chosen, **scopes})


def _takes_attention(model: PreTrainedModel) -> bool:
    """And can do without a mask. Found out as transformers does it: by what the code says."""
    return model._can_set_attn_implementation() and "allow_is_causal_skip=False" not in inspect.getsource(sys.modules[type(model).__module__])


def _is_experts(module: torch.nn.Module) -> bool:
    """The weights of all experts are in one tensor."""
    return _is_dispatched(module) or (hasattr(module, "gate_up_proj") and hasattr(module, "down_proj") and hasattr(module, "num_experts"))


def _is_dispatched(module: torch.nn.Module) -> bool:
    """Which code it runs is found by `config._experts_implementation` (transformers.integrations.moe.use_experts_implementation)."""
    return all(hasattr(module, name) for name in ("config", "num_experts", "has_gate", "has_bias", "is_transposed", "_apply_gate"))


def _replaceable(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    return {name: module for name, module in model.named_modules() if _is_experts(module)}


def _can_be_replaced(found: dict[str, torch.nn.Module], implementation: Callable) -> bool:
    """All of them or none: they share a config. What is not equal is said once for a class."""
    reasons: dict[type, str] = {}
    for name, module in found.items():
        if type(module) in reasons:
            continue
        reason = difference(module, implementation) if _is_dispatched(module) else "does not let its implementation be chosen"
        if reason is not None:
            reasons[type(module)] = f"{name} ({type(module).__name__}) {reason}"
    for reason in reasons.values():
        warnings.warn(f"piper: {reason}, so the experts of the model keep their own code; shard cannot divide them, and a loop over "
                      'experts cannot be captured: model.set_experts_implementation("batched_mm") can', CaptureWarning, stacklevel=3)
    return bool(found) and not reasons


def slots(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """Experts on values [experts, slots, width]: shapes depend on nothing but the number of tokens.

    Equal to the model's own loop over experts, if nothing is dropped. A token that chooses an expert twice has one slot there, so that
    there are never more than there are tokens.
    """
    tokens, width = hidden_states.shape
    choices, experts = top_k_index.shape[-1], self.num_experts
    factor = getattr(self, "capacity_factor", None)
    _report_load(self, top_k_index)
    source = torch.arange(tokens, device=hidden_states.device).repeat(choices)
    if factor is None:
        capacity = tokens
        number = F.one_hot(top_k_index, experts).amax(1).cumsum(0).gather(1, top_k_index) - 1
        slot = (top_k_index * capacity + number).t().reshape(-1)
        again = (top_k_index[:, :, None] == top_k_index[:, None, :]).tril(-1).any(-1)
        once = hidden_states[source] * (~again).t().reshape(-1, 1).to(hidden_states.dtype)
        given = hidden_states.new_zeros(experts * capacity, width).index_add(0, slot, once)
    else:  # in the order (choice, token); one more row, for what is dropped
        capacity = min(tokens, math.ceil(factor * tokens * choices / experts))
        expert = top_k_index.t().reshape(-1)
        number = F.one_hot(expert, experts).cumsum(0).gather(1, expert[:, None]).squeeze(1) - 1
        slot = torch.where(number < capacity, expert * capacity + number, experts * capacity)
        given = hidden_states.new_zeros(experts * capacity + 1, width).index_copy(0, slot, hidden_states[source])[:-1]
    taken = _run_experts(self, given.view(experts, capacity, width)).reshape(experts * capacity, width)
    if factor is not None:
        taken = torch.cat([taken, taken.new_zeros(1, width)])
    weights = top_k_weights.t().reshape(-1, 1).to(taken.dtype)
    return (taken[slot] * weights).view(choices, tokens, width).sum(0)


def rows(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """Experts on a row for every choice of every token, sorted by expert: tokens * top_k rows, whatever the router says.

    As transformers' `grouped_mm`, with a stable sort: the rows of an expert are in the order of tokens.
    """
    choices, expert = top_k_index.shape[-1], top_k_index.reshape(-1)
    _report_load(self, top_k_index)
    order = expert.argsort(stable=True)
    places = torch.zeros_like(order).scatter(0, order, torch.arange(order.shape[0], device=order.device))
    ends = _counts(self, top_k_index).cumsum(0, dtype=torch.int32)
    given = _ToRows.apply(hidden_states, order, places, choices)
    taken = _Reordered.apply(_run_experts(self, given, ends), places, order)
    return (taken.unflatten(0, (-1, choices)) * top_k_weights.unsqueeze(-1)).sum(1).to(hidden_states.dtype)


def _counts(self, top_k_index: torch.Tensor) -> torch.Tensor:
    """How often each expert is chosen."""
    chosen = top_k_index.reshape(-1)
    return chosen.new_zeros(self.num_experts).scatter_add(0, chosen, torch.ones_like(chosen))


def _report_load(self, top_k_index: torch.Tensor) -> None:
    """The part of all choices of each expert, where `use` was asked for it."""
    if getattr(self, "load_metric", None) is not None:
        report(self.load_metric, _counts(self, top_k_index).float() / top_k_index.numel())


class _ToRows(torch.autograd.Function):
    """Tokens to the rows of their choices. A token adds up the gradients of its choices in their order."""

    @staticmethod
    def forward(context, tokens: torch.Tensor, order: torch.Tensor, places: torch.Tensor, choices: int) -> torch.Tensor:
        context.save_for_backward(places)
        context.choices = choices
        return tokens.index_select(0, order // choices)

    @staticmethod
    def backward(context, gradient: torch.Tensor):
        places, = context.saved_tensors
        return gradient.index_select(0, places).unflatten(0, (-1, context.choices)).sum(1), None, None, None


class _Reordered(torch.autograd.Function):
    """Rows in an order whose inverse is known, so that neither direction adds up by index."""

    @staticmethod
    def forward(context, given: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(inverse)
        return given.index_select(0, order)

    @staticmethod
    def backward(context, gradient: torch.Tensor):
        inverse, = context.saved_tensors
        return gradient.index_select(0, inverse), None, None


def _run_experts(self, given: torch.Tensor, ends: Optional[torch.Tensor] = None) -> torch.Tensor:
    """What the module itself does with the tokens of an expert, for all of them: [experts, slots, width], or [rows, width] and where the rows
    of each expert end."""
    with scope(scope_name(self, "experts"), experts=self.num_experts):
        inner = _project(self, "gate_up_proj" if self.has_gate else "up_proj", given, ends)
        out = _project(self, "down_proj", self._apply_gate(inner) if self.has_gate else self.act_fn(inner), ends)
        return self.post_expert_norm(out) if getattr(self, "has_post_expert_norm", False) else out


def _project(self, name: str, given: torch.Tensor, ends: Optional[torch.Tensor]) -> torch.Tensor:
    weight = getattr(self, name)
    matrices, bias = weight if self.is_transposed else weight.transpose(1, 2), getattr(self, name + "_bias").unsqueeze(1) if self.has_bias else None
    if ends is None:
        out = torch.bmm(given, matrices)
        return out if bias is None else out + bias
    out = torch.ops.piper.grouped_mm(given, matrices, ends)
    return out if bias is None else out + torch.ops.piper.grouped_mm(given.new_ones(given.shape[0], 1), bias, ends)


def _causal_mask(*, batch_size: int, q_length: int, kv_length: int, q_offset=0, kv_offset=0, mask_function, attention_mask=None,
                 allow_is_causal_skip: bool = True, use_vmap: bool = False, device="cpu", **kwargs) -> Optional[torch.Tensor]:
    """The mask of `sdpa`, and none where it is plainly causal whatever the batch: windows, padding and packed documents stay.

    transformers itself decides so by the numbers of a mask, which are not there while a model is captured.
    """
    fixed = isinstance(q_offset, int) and q_offset == kv_offset == 0 and q_length == kv_length
    if _piper.is_recording() and fixed and attention_mask is None and not use_vmap and q_length > 1:
        if _is_plainly_causal(mask_function, batch_size, q_length, device):
            return None
        allow_is_causal_skip = False
    return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
                     mask_function=mask_function, attention_mask=attention_mask, allow_is_causal_skip=allow_is_causal_skip,
                     use_vmap=use_vmap, device=device, **kwargs)


def _is_plainly_causal(mask_function, batch: int, length: int, device) -> bool:
    """Compared in blocks of rows: a mask may be larger than all else."""
    rows = max(1, 2**24 // (batch * length))
    sample, key = torch.arange(batch, device=device)[:, None, None, None], torch.arange(length, device=device)[None, None, None, :]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=device)
    for first in range(0, length, rows):
        query = torch.arange(first, min(first + rows, length), device=device)[None, None, :, None]
        equal = (mask_function(sample, head, query, key) == (key <= query)).all()
        if _piper.fixed_number(equal) != 1.0:
            return False
    return True


AttentionInterface.register(CAUSAL, sdpa_attention_forward)
AttentionMaskInterface.register(CAUSAL, _causal_mask)
ALL_EXPERTS_FUNCTIONS.register(SLOTS, slots)
ALL_EXPERTS_FUNCTIONS.register(ROWS, rows)


def __getattr__(name: str):
    """`Trainer`, with what transformers needs for its own, which takes seconds to import."""
    if name == "Trainer":
        from .trainer import Trainer

        return Trainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Whether another implementation of experts computes what a module of transformers computes itself."""
from __future__ import annotations

import copy
import itertools
from typing import Callable, Optional

import torch

SCALES = (0.1, 1.0, 30.0)  # of the tokens: what a gate clamps far from 0 is met too
ROUTINGS = {  # the experts that tokens choose: different ones, as routers do it, and one of them again, as a table may say
    "different": lambda drawn: drawn.topk(min(2, drawn.shape[1])).indices,
    "equal": lambda drawn: torch.zeros(len(drawn), 2, dtype=torch.int64),
    "some equal": lambda drawn: (drawn[:, :3] * drawn.shape[1]).long().clamp(max=drawn.shape[1] - 1),
}
LARGEST = 2**18  # numbers in a module that is compared as it is; a larger one is compared with fewer and narrower experts
TOLERANCE = 1e-5  # a module may compute in float32 inside


def difference(module: torch.nn.Module, implementation: Callable) -> Optional[str]:
    """What is different, or None. Output and gradients of both on random numbers; the module itself, which may be on the meta device, is
    neither run nor changed."""
    try:
        sample = _sample(module)
        for scale, routing in itertools.product(SCALES, ROUTINGS):
            batch = _batch(sample, scale, routing)
            sample.config._experts_implementation_internal = "eager"  # the module's own code
            own = _run(sample, type(sample).forward, batch)
            ours = _run(sample, implementation, batch)
            for name, value in own.items():
                if not _equal(ours[name], value):
                    return f"computes another {name} than {implementation.__name__}"
    except Exception as problem:  # whatever its code does with such a sample
        return f"cannot be compared with {implementation.__name__} ({type(problem).__name__}: {problem})"
    return None


def _sample(module: torch.nn.Module) -> torch.nn.Module:
    """The module with random weights in float64, and small."""
    sizes = _smaller(module) if sum(value.numel() for value in module.parameters()) > LARGEST else {}
    generator = torch.Generator().manual_seed(0)

    def fresh(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value.detach().clone()
        shape = [sizes.get(size, size) for size in value.shape]
        return torch.randn(shape, generator=generator, dtype=torch.float64) / 2

    made = {id(value): torch.nn.Parameter(fresh(value)) for value in module.parameters()}
    made |= {id(value): fresh(value) for value in module.buffers()}
    made[id(module.config)] = copy.copy(module.config)
    out = copy.deepcopy(module, made)  # takes what is in `made` instead of copying it
    out.capacity_factor = None  # nothing is dropped here
    for part in out.modules():
        for name, value in vars(part).items():
            if type(value) is int and value in sizes:
                setattr(part, name, sizes[value])
    return out


def _smaller(module: torch.nn.Module) -> dict[int, int]:
    """Sizes of the module to small ones: width, inner width, both halves of it, experts. What is equal or double stays so."""
    experts, *widths = module.down_proj.shape
    inner, width = widths if module.is_transposed else reversed(widths)
    return {experts: min(experts, 4), width: 10} | {inner: 6, 2 * inner: 12}


def _batch(module: torch.nn.Module, scale: float, routing: str) -> list[torch.Tensor]:
    """Tokens, the experts that they choose, and the weights of these."""
    generator = torch.Generator().manual_seed(1)
    width = module.down_proj.shape[2 if module.is_transposed else 1]
    chosen = ROUTINGS[routing](torch.rand(24, module.num_experts, generator=generator))
    tokens = scale * torch.randn(24, width, generator=generator, dtype=torch.float64)
    return [tokens.requires_grad_(), chosen, torch.rand(chosen.shape, generator=generator, dtype=torch.float64).requires_grad_()]


def _run(module: torch.nn.Module, implementation: Callable, batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.enable_grad():
        out = implementation(module, *batch)
        wanted = {"gradient of tokens": batch[0], "gradient of routing weights": batch[2]}
        wanted |= {f"gradient of {name}": value for name, value in module.named_parameters()}
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        gradients = torch.autograd.grad((out * weights).sum(), list(wanted.values()), allow_unused=True)
    return {"output": out.detach()} | {name: torch.zeros_like(value) if gradient is None else gradient
                                       for (name, value), gradient in zip(wanted.items(), gradients)}


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())

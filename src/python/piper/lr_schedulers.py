"""Learning rates by the schedulers of PyTorch."""
from __future__ import annotations

from typing import Callable

import torch

from .optimizers import _Optimizer, check_optimizer


class LRScheduler:
    """Any scheduler of torch.optim.lr_scheduler, for an optimizer of Piper. Call `step()` after every step of the trainer.

        optimizer = piper.AdamW(lr=3e-4)
        scheduler = piper.LRScheduler(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR, T_max=1000)
        with piper.Trainer(graph, schedule, optimizer=optimizer) as trainer:
            for batch in batches:
                trainer.step(batch)
                scheduler.step()

    `make`: a class of torch.optim.lr_scheduler, or a function that makes a scheduler for an optimizer of PyTorch; it is called with a dummy
    optimizer that has the same learning rate, and with the other arguments.
    """

    def __init__(self, optimizer: _Optimizer, make: Callable[..., torch.optim.lr_scheduler.LRScheduler], *arguments, **options):
        self.optimizer = check_optimizer(optimizer)
        self._theirs = torch.optim.SGD([torch.zeros(())], lr=optimizer.lr)
        self.scheduler = make(self._theirs, *arguments, **options)
        self._set()

    def step(self, *arguments) -> None:
        """Advances to the next step. Arguments are those of the scheduler: `ReduceLROnPlateau` takes the loss."""
        self._theirs.step()  # without gradients: nothing; schedulers want to see it
        self.scheduler.step(*arguments)
        self._set()

    def state_dict(self) -> dict:
        return {"scheduler": self.scheduler.state_dict(), "lr": self.optimizer.lr}

    def load_state_dict(self, state: dict) -> None:
        self.scheduler.load_state_dict(state["scheduler"])
        self._theirs.param_groups[0]["lr"] = state["lr"]
        self._set()

    def _set(self) -> None:
        self.optimizer.lr = float(self._theirs.param_groups[0]["lr"])

"""Samples of data folders, files of tokens and text: the same as `[data]` of a configuration gives."""
from __future__ import annotations

import os
from typing import Iterator, Mapping, NamedTuple, Optional, Sequence, Union

import torch

from . import _piper
from .errors import ScheduleError, check_is, check_number, check_word, path_of, refused as _refused

Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]]]


class Source(NamedTuple):
    """Files of a mixture."""

    paths: Paths
    """Data folders, files, folders and patterns such as docs/**/*.md."""
    weight: float = 1.0
    """Relative to the other sources."""


class Samples:
    """An endless iterable of batches, {"input_ids": ..., "labels": ...}, as causal models of transformers take them: labels are the tokens
    themselves, and -100 where the loss does not count them.

        for result in trainer.train(piper.Samples("data", sequence=512, batch=8), steps=100): ...

    `data`: paths, or a list of `Source`; `kind`: "tokens" (data folders, Megatron's and nanoGPT's files) or "text" (bytes). `packing`: "carry",
    "truncate" or "none"; `attention`: with "document" batches have `position_ids`, which start again with every document, so that models of
    transformers keep documents apart; `loss`: "all" or "completions"; `shuffle`: "all", "none", or a number of samples to shuffle together; `validation`: share that training
    does not see, `split`: "training" or "validation". docs/data.md explains them. `vocabulary`: tokens must be below it. Sample i does not
    depend on the size of the batch; `samples` is the number given so far, and may be set, to resume: `batches.samples = done.samples`.
    """

    def __init__(self, data: Union[Paths, Sequence[Source]], *, sequence: int, batch: int, kind: str = "tokens", dtype: str = "uint16",
                 packing: str = "carry", attention: str = "sample", loss: Optional[str] = None, shuffle: Union[str, int] = "all", validation: float = 0.0,
                 split: str = "training", seed: int = 0, vocabulary: Optional[int] = None):
        check_word("kind", kind, ("tokens", "text"))
        check_word("dtype", dtype, ("uint16", "uint32"))
        check_word("packing", packing, ("carry", "truncate", "none"))
        check_word("attention", attention, ("sample", "document"))
        check_word("split", split, ("training", "validation"))
        if loss is not None:
            check_word("loss", loss, ("all", "completions"))
        if isinstance(shuffle, str):
            check_word("shuffle", shuffle, ("all", "none"))
        else:
            check_number("shuffle", shuffle, int, 1, 10**12)
        for what, given in (("sequence", sequence), ("batch", batch)):
            check_number(what, given, int, 1, 2**31)
        check_number("seed", seed, int, 0, 2**63 - 1)
        check_number("validation", validation, float, 0, 0.999)
        sources = list(data) if isinstance(data, (list, tuple)) and data and all(isinstance(of, Source) for of in data) else [Source(data)]
        numbers = []
        for source in sources:
            check_number("weight", source.weight, float, 1e-12, 1e12)
            check_is("a source", source.paths, (str, os.PathLike, list, tuple), "a path, or a list of paths")
            paths = [source.paths] if isinstance(source.paths, (str, os.PathLike)) else list(source.paths)
            if not paths:
                raise _refused(ScheduleError, "E105", "a source has no paths", "name data folders, files or patterns")
            numbers.append(([path_of("a source", path) for path in paths], float(source.weight), None))
        if vocabulary is not None:
            check_number("vocabulary", vocabulary, int, 1, 2**31 - 1)
        window = None if shuffle == "all" else 1 if shuffle == "none" else int(shuffle)
        self._handle = _piper.Samples(kind, numbers, dtype, packing, attention, loss, window, float(validation), seed, sequence, vocabulary,
                                      split == "validation")
        self.batch = batch
        self.attention = attention
        self.samples = 0

    def at(self, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch that begins with a sample: tokens, and the targets of each, its successor, as `piper train` gives them to a model."""
        check_number("first", first, int, 0, 2**62)
        return self._handle.batch(first, self.batch)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            tokens, targets = self.at(self.samples)
            places = {"position_ids": self._handle.places(self.samples, self.batch)} if self.attention == "document" else {}
            self.samples += self.batch
            labels = torch.full_like(targets, -100)
            labels[:, 1:] = targets[:, :-1]
            yield {"input_ids": tokens, "labels": labels, **places}

    def state_dict(self) -> dict[str, int]:
        """The position: samples given."""
        return {"samples": self.samples}

    def load_state_dict(self, state: dict[str, int]) -> None:
        check_is("the state", state, Mapping, "what state_dict() gave")
        samples = state.get("samples")
        check_number("samples of the state", samples, int, 0, 2**62)
        self.samples = int(samples)

    def __repr__(self) -> str:
        return f"<piper.Samples: {self._handle.describe()}>"

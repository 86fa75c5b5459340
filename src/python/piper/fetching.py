"""Batches, fetched while steps run."""
from __future__ import annotations

import queue
import threading
from typing import Any, Iterable, Iterator

from .errors import ScheduleError, check_number, refused as _refused


class FetchAhead:
    """An iterator over the batches of any iterable, for example a DataLoader, which a thread fetches in advance.

        with piper.FetchAhead(loader) as batches:
            for batch in batches:
                trainer.step(batch)

    `ahead`: the maximum number of batches fetched in advance. An exception of the iterable is raised here, after the batches before it.
    Closing it ends the thread as soon as the iterable returns its next batch.

    If the iterable has a `state_dict()`, as torchdata's StatefulDataLoader, `state_dict()` here is the one after the batch that was given out
    last: what `load_state_dict` of the iterable resumes from, although later batches were fetched already.
    """

    def __init__(self, batches: Iterable[Any], *, ahead: int = 2):
        check_number("ahead", ahead, int, 1, 1_000_000)
        if not hasattr(batches, "__iter__"):
            raise _refused(ScheduleError, "E105", f"batches are an iterable, not {type(batches).__name__}", "a DataLoader, a list, a generator")
        self._state_of = getattr(batches, "state_dict", None)
        self._state = None if self._state_of is None else self._state_of()
        self._fetched: "queue.Queue[tuple[str, Any, Any]]" = queue.Queue(ahead)
        self._closed = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._fetch, args=(batches,), name="piper fetches batches", daemon=True)
        self._thread.start()

    def _fetch(self, batches: Iterable[Any]) -> None:
        try:
            for batch in batches:
                self._put("batch", batch, None if self._state_of is None else self._state_of())
                if self._closed.is_set():
                    return
            self._put("end", None, None)
        except BaseException as failure:
            self._put("failure", failure, None)

    def _put(self, what: str, value: Any, state: Any) -> None:
        while not self._closed.is_set():
            try:
                return self._fetched.put((what, value, state), timeout=0.1)
            except queue.Full:
                pass

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over or self._closed.is_set():
            raise StopIteration
        what, value, state = self._fetched.get()
        if what == "batch":
            self._state = state
            return value
        self._over = True
        if what == "failure":
            raise value
        raise StopIteration

    def state_dict(self) -> Any:
        """Of the iterable, as it was after the last batch that was given out."""
        if self._state_of is None:
            raise _refused(ScheduleError, "E105", "what the batches come from has no state_dict()",
                           "torchdata's StatefulDataLoader has one; or count the batches and skip them when you resume")
        return self._state

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        while not self._fetched.empty():
            self._fetched.get_nowait()
        self._thread.join()

    def __enter__(self) -> "FetchAhead":
        return self

    def __exit__(self, *_) -> None:
        self.close()

"""The weighted mean, formed while updates arrive: a chunk is averaged once every update's is here, in the same order and to the same bits."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from operator import is_

from anchorage.api.errors import AnchorageError
from anchorage.engine.aggregation.mean import average_chunk, terms_of
from anchorage.engine.aggregation.regions import float_regions
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile


class EarlyMean:
    """Averages in a thread of its own what is there of updates that are on their way.

    It only spares time: where a round ends with other updates or weights than those that were foreseen, it is of no use.

    Parameters
    ----------
    updates : sequence of SpoolFile
        Updates in the order of the sum, as far as they have arrived.
    weights : sequence of float
        One per update: finite, not negative, not all zero.
    layout : Layout
        Of every update.
    """

    def __init__(self, updates: Sequence[SpoolFile], weights: Sequence[float], layout: Layout) -> None:
        self._updates, self._weights, self._layout = tuple(updates), tuple(weights), layout
        self._terms, self._regions = terms_of(updates, weights, layout), float_regions(layout)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="early-mean")
        self._lock = threading.Lock()
        self._averaged: dict[int, Future[tuple[bytes, bytes, bool]]] = {}
        self._over = False
        counted = [update for update, weight in zip(updates, weights, strict=True) if weight > 0]
        with self._lock:  # what arrives meanwhile is heard behind this
            for update in counted:
                update.tell(partial(self._hear, update))
            lacking = [(index, update) for update in counted for index in update.missing()]
            self._lacking: list[set[SpoolFile]] = [set() for _ in self._regions]
            for index, update in lacking:
                self._lacking[index].add(update)
            for index, updates_without in enumerate(self._lacking):
                if not updates_without:
                    self._average(index)

    def _hear(self, update: SpoolFile, index: int) -> None:
        with self._lock:
            self._lacking[index].discard(update)
            if not (self._over or self._lacking[index] or index in self._averaged):
                self._average(index)

    def _average(self, index: int) -> None:
        self._averaged[index] = self._pool.submit(average_chunk, self._terms, self._regions[index], index)

    def mean(self, updates: Sequence[ChunkSource], weights: Sequence[float]) -> ModelBytes | None:
        """Return `weighted_mean` of whole updates, once; None where they or their weights are not those foreseen, or one cannot be used."""
        for update in self._updates:
            update.tell(None)
        with self._lock:
            self._over, averaged = True, [self._averaged.pop(index) for index in sorted(self._averaged)]
        same = len(updates) == len(self._updates) and all(map(is_, updates, self._updates))
        same = same and tuple(weights) == self._weights and len(averaged) == len(self._regions)
        self._pool.shutdown(wait=False, cancel_futures=not same)
        try:
            chunks = [each.result() for each in averaged] if same else []
        except AnchorageError:  # reading failed: whoever reads again is told
            return None
        if not same or not all(finite for _, _, finite in chunks):
            return None
        return ModelBytes(self._layout, (data for data, _, _ in chunks), (digest for _, digest, _ in chunks))

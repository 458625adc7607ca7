"""The weighted mean, formed while updates arrive: a chunk is averaged once every update's is here, in the same order and to the same bits."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from math import isfinite
from operator import is_

from anchorage.api.errors import AnchorageError
from anchorage.engine.aggregation.mean import average_chunk, terms_of
from anchorage.engine.aggregation.norms import FEWEST, Measured, Norms
from anchorage.engine.aggregation.regions import WORKERS, float_regions
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile


class EarlyMean:
    """Averages in threads of its own what is there of updates that are on their way, and measures them.

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
        counted = [update for update, weight in zip(updates, weights, strict=True) if weight > 0]
        self._measured = {update: Measured(update, layout) for update in counted if len(counted) >= FEWEST}
        self._terms = terms_of([self._measured.get(update, update) for update in updates], weights, layout)
        self._regions = float_regions(layout)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="early-mean")
        self._lock = threading.Lock()
        self._averaged: dict[int, Future[tuple[bytes, bytes, bool]]] = {}
        self._over = False
        with self._lock:  # what arrives meanwhile is heard behind this
            for update in counted:
                update.tell(partial(self._hear, update))
            self._lacking: list[set[SpoolFile]] = [set() for _ in self._regions]
            for update in counted:
                for index in update.missing():
                    self._lacking[index].add(update)
            for index, lacking in enumerate(self._lacking):
                if not lacking:
                    self._average(index)

    def _hear(self, update: SpoolFile, index: int) -> None:
        with self._lock:
            self._lacking[index].discard(update)
            if not (self._over or self._lacking[index] or index in self._averaged):
                self._average(index)

    def _average(self, index: int) -> None:
        self._averaged[index] = self._pool.submit(average_chunk, self._terms, self._regions[index], index)

    @cached_property
    def _chunks(self) -> list[tuple[bytes, bytes, bool]] | None:
        """Every chunk of the mean; None where an update is not whole or could not be read."""
        for update in self._updates:
            update.tell(None)
        with self._lock:
            self._over, averaged = True, [self._averaged.pop(index) for index in sorted(self._averaged)]
        whole = len(averaged) == len(self._regions)
        self._pool.shutdown(wait=False, cancel_futures=not whole)
        try:
            return [each.result() for each in averaged] if whole else None
        except AnchorageError:  # whoever reads it again is told
            return None

    def norms(self, updates: Sequence[ChunkSource]) -> list[Norms] | None:
        """Return `norms_of` updates, to be asked when they are whole; None where some are others, or not finite."""
        measured = [self._measured[update] for update in updates if update in self._measured]
        if len(measured) < len(updates) or self._chunks is None:
            return None
        found = [each.norms for each in measured]
        return found if all(isfinite(norm) for norms in found for norm in norms) else None

    def mean(self, updates: Sequence[ChunkSource], weights: Sequence[float]) -> ModelBytes | None:
        """Return `weighted_mean` of whole updates; None where they or their weights are not those foreseen, or one cannot be used."""
        same = len(updates) == len(self._updates) and all(map(is_, updates, self._updates))
        chunks, same = self._chunks, same and tuple(weights) == self._weights
        if chunks is None or not same or not all(finite for _, _, finite in chunks):
            return None
        return ModelBytes(self._layout, (data for data, _, _ in chunks), (digest for _, digest, _ in chunks))

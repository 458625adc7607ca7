"""An adaptive Metis silo's round: epochs until its validation cycle ends (methods reference, 6.14)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.method import ValidationCycle
from anchorage.learning.silo_round import Work
from anchorage.learning.validation_cycle import Cycle, extend_history, staleness_limit
from anchorage.transport.messages import VALIDATION, AuxiliaryData

_HISTORY = "cycle/staleness"


class AdaptiveRound:
    """Ends a round's losses when the silo's validation cycle ends.

    Parameters
    ----------
    rules : ValidationCycle
        When a cycle ends.
    auxiliary_data : mapping of str to ndarray
        The task's auxiliary data: ``committed_steps`` at the download, and ``staleness`` of the silo's last commit.
    previous_state : mapping of str to ndarray
        What was kept from the rounds before.
    validate : callable
        Returns the loss on the validation split, and what the weighting counts there, of the network in training.
    """

    def __init__(
        self,
        rules: ValidationCycle,
        auxiliary_data: AuxiliaryData,
        previous_state: Mapping[str, NDArray[Any]],
        validate: Callable[[], tuple[float, NDArray[np.int64] | None]],
    ) -> None:
        self._base = self._committed = int(auxiliary_data.get("committed_steps", 0))
        last = auxiliary_data.get("staleness")
        history = previous_state.get(_HISTORY, np.empty(0, np.int64)).tolist()
        self._history = extend_history(history, None if last is None else int(last))
        self._validate = validate
        loss, self._counts = validate()
        self._max_epochs, self._steps = rules.max_epochs, 0
        self._cycle = Cycle(rules, loss, staleness_limit(self._history))

    def hearing(self, progress: Callable[[int, int], int]) -> Callable[[int, int], int]:
        """Return a way to say how far the task is that takes note of the committed steps in the answer."""

        def say(done: int, total: int) -> int:
            self._committed = max(self._committed, progress(done, total))
            return self._committed

        return say

    def shorten(self, work: Work) -> Work:
        """Return a round's work, of the longest cycle, as that of the cycle that it will be.

        What is announced has ``steps``, int64 [], and the last validation's counts, where the weighting needs them, of the update's weights.
        """

        def auxiliary_data() -> AuxiliaryData:
            counts = {} if self._counts is None else {VALIDATION: self._counts}
            return {**work.auxiliary_data(), "steps": np.array(self._steps, np.int64), **counts}

        def keep_history() -> Mapping[str, NDArray[Any]]:
            return {**work.kept(), _HISTORY: np.array(self._history, np.int64)}

        def metrics() -> Mapping[str, float]:
            return {**work.metrics(), "epochs": self._cycle.epochs}

        return replace(
            work, losses=self._until_the_end(work), auxiliary_data=auxiliary_data, kept=keep_history, metrics=metrics
        )

    def _until_the_end(self, work: Work) -> Iterator[Tensor]:
        per_epoch = work.steps // self._max_epochs
        while (loss := next(work.losses, None)) is not None:
            yield loss
            self._steps += 1
            if self._steps % per_epoch == 0 and self._epoch_ends_the_cycle():
                return

    def _epoch_ends_the_cycle(self) -> bool:
        loss, self._counts = self._validate()
        return self._cycle.ends(loss, self._committed - self._base + self._steps)

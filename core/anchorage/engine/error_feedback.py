"""Error feedback at a silo: what an encoding lost of an update is added to the next one.

Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs".
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.round_state import RoundState
from anchorage.transport.tensors.encoded import Encoding


class ErrorFeedback:
    """Keeps what was lost of a silo's changes, a file per round.

    A round that is done again starts from what was lost before it, and so ends in the same bytes.

    Parameters
    ----------
    folder : Path
        A folder of one silo and run; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._state = RoundState(folder)

    def round_update(
        self, round_number: int, encoding: Encoding, update: NDArray[np.uint8], base: NDArray[np.uint8]
    ) -> None:
        """Round an update, uint8 [up.nbytes], in place, together with what was lost before, and keep what is lost now.

        Raises
        ------
        AnchorageError
            The folder cannot be read or written.
        """
        previous_residual = self._state.before(round_number).get(
            encoding.up.digest
        )  # a stage before may have had another layout
        lost = (
            np.zeros(encoding.up.nbytes, np.uint8)
            if previous_residual is None
            else np.array(previous_residual, np.uint8)
        )
        encoding.round_update(update, base, lost)
        self._state.keep(round_number, {encoding.up.digest: lost})

"""Batch normalisation is averaged like everything else (methods reference, section 1, rule 5)."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import BatchNorm


@piece("average")
class Average(BatchNorm):
    """Averaged like every other tensor, running statistics included."""

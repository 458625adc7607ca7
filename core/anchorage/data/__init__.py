"""Images and labels: readers, splits, partitions; augmentation, which needs torch, is the module `anchorage.data.augmentation`."""

from anchorage.data.divisions import Choice, Pools
from anchorage.data.images import UNLABELLED, ImageSet
from anchorage.data.index_files import write_index
from anchorage.data.listing import REASONS, BadImage
from anchorage.data.reading import check, read
from anchorage.data.report import DataReport

__all__ = [
    "REASONS",
    "UNLABELLED",
    "BadImage",
    "Choice",
    "DataReport",
    "ImageSet",
    "Pools",
    "check",
    "read",
    "write_index",
]

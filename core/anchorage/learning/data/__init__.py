"""Images and labels: readers, splits, partitions; augmentation, which needs torch, is the module `anchorage.learning.data.augmentation`."""

from anchorage.learning.data.divisions import Choice, Pools
from anchorage.learning.data.images import ImageSet, require_labels
from anchorage.learning.data.index_files import write_index
from anchorage.learning.data.listing import REASONS, BadImage
from anchorage.learning.data.overlap import Overlap, overlap
from anchorage.learning.data.reading import assemble, check, decode_listing, read, read_chosen
from anchorage.learning.data.report import DataReport

__all__ = [
    "REASONS",
    "BadImage",
    "Choice",
    "DataReport",
    "ImageSet",
    "Overlap",
    "Pools",
    "assemble",
    "check",
    "decode_listing",
    "overlap",
    "read",
    "read_chosen",
    "require_labels",
    "write_index",
]

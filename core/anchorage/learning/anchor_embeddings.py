"""The server's anchors as a model sees them, and what silos are told of that (METHODS.md 6.8)."""

from typing import NamedTuple

import torch

from anchorage.api.method import PseudoLabels
from anchorage.learning.local_training import Labelled
from anchorage.learning.models import Network
from anchorage.learning.pseudo_labels import class_prototypes, unit_rows, unreachable
from anchorage.transport.messages import SideChannel


class AnchorEmbeddings(NamedTuple):
    """What a model makes of the anchors.

    Parameters
    ----------
    model : str
        Digest of the model.
    side : mapping of str to ndarray
        ``prototypes`` float32 [C, 128] (NaN rows for classes without anchors), or ``anchors`` float32 [S, 128] of unit length and
        ``anchor_labels`` int64 [S].
    unreachable : int
        Classes as which no silo can accept an image.
    """

    model: str
    side: SideChannel
    unreachable: int


def embed_anchors(
    digest: str, network: Network, anchors: Labelled, pseudo: PseudoLabels, num_classes: int
) -> AnchorEmbeddings:
    """Embed the anchors.

    Parameters
    ----------
    digest : str
        Of the model.
    network : Network
        The model, in eval mode.
    anchors : Labelled
        The anchors.
    pseudo : PseudoLabels
        What silos are told, and their threshold.
    num_classes : int
        Classes C.
    """
    views = anchors.views
    units = unit_rows(views.mapped(anchors.indices, lambda i: network.anchor(views.plain(i))))
    prototypes, present = class_prototypes(units, views.to_device(anchors.labels), num_classes)
    if pseudo.anchors == "Raw":
        side: SideChannel = {"anchors": units.cpu().numpy(), "anchor_labels": anchors.labels}
    else:
        side = {"prototypes": prototypes.masked_fill(~present[:, None], torch.nan).cpu().numpy()}
    return AnchorEmbeddings(digest, side, int(unreachable(prototypes, float(pseudo.threshold)).sum()))

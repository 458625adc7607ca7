"""A second head beside the classifier: FedRoD's personal one, SSIL-CDM's plain one (METHODS.md 6.12), and FedCon's local projector (6.7).

The classifier is always the head that is tested: the generic one beside a personal head, the balanced one beside a plain head.
"""

from torch import Tensor, nn
from torch.nn import functional

from anchorage.api.method import ResolvedMethod

LOCAL_PART = "local."
"""Prefix of the tensors that never leave a silo: FedRoD's personal head, FedCon's projector."""


def build_second_part(
    method: ResolvedMethod, classifier: nn.Linear, width: int
) -> tuple[nn.Linear | None, nn.Module | None]:
    """Return the plain head, which travels, and the part that stays at the silo; None where the method has none.

    Parameters
    ----------
    method : ResolvedMethod
        The method.
    classifier : Linear
        The head that is tested; a second one has its shape.
    width : int
        Of the encoder's features.
    """
    second = method.heads.second
    if method.self_supervised.type == "Byol":
        hidden = 3 * width  # as in FedCon's public code
        return None, nn.Sequential(
            nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
    if second == "None":
        return None, None
    head = nn.Linear(classifier.in_features, classifier.out_features)
    return (head, None) if second == "Balanced" else (None, head)


def personal_cross_entropy(generic: Tensor, personal: Tensor, labels: Tensor) -> Tensor:
    """Return each image's cross entropy of both heads together, of which only the personal one learns (METHODS.md 6.12, KAT N3).

    Parameters
    ----------
    generic, personal : Tensor of float, shape [n, C]
        Logits of the two heads.
    labels : Tensor of int64, shape [n]
        Classes.
    """
    return functional.cross_entropy(generic.detach() + personal, labels, reduction="none")

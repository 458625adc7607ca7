"""Check of pseudo-labels, once per round and silo."""

import torch
from torch import Tensor

from anchorage.api.piece_faults import WrongResultError, describe_value


def check_labels(result: object, count: int, num_outputs: int) -> tuple[Tensor, Tensor]:
    """Return pseudo-labels, int64 [count], and whether they are accepted, bool [count].

    Parameters
    ----------
    result : tuple of Tensor
        What a pseudo-labeller returned.
    count : int
        How many images it was to label.
    num_outputs : int
        Classes of the model.

    Raises
    ------
    WrongResultError
        It is no such pair, or a label is no class.
    """
    due = f"labels, int64 [{count}], and whether they are accepted, bool [{count}]"
    if not isinstance(result, tuple) or len(result) != 2:
        raise WrongResultError(describe_value(result), due)
    labels, accepted = result
    for tensor, dtype in ((labels, torch.int64), (accepted, torch.bool)):
        if not isinstance(tensor, Tensor) or tensor.dtype != dtype or tensor.shape != (count,):
            raise WrongResultError(f"{describe_value(labels)} and {describe_value(accepted)}", due)
    if count:
        smallest, largest = torch.stack([labels.min(), labels.max()]).tolist()
        if smallest < 0 or largest >= num_outputs:
            result = f"labels from {smallest} to {largest}"
            raise WrongResultError(result, f"labels from 0 to {num_outputs - 1}, of images that are not accepted, too")
    return labels, accepted

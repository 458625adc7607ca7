"""Models, local objectives, pseudo-labellers, server training and metrics; everything that needs torch."""

from pathlib import Path

from anchorage.api.federation import Embeddings
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.piece_faults import naming_pieces
from anchorage.api.run import RunDescription
from anchorage.learning.data import ImageSet
from anchorage.learning.device import find_device
from anchorage.learning.device_group import DeviceGroup, device_of
from anchorage.learning.dp_sgd import DpSgd
from anchorage.learning.server_learner import TorchServerLearner
from anchorage.learning.silo_learner import Examine, TorchSiloLearner
from anchorage.learning.silo_networks import Networks
from anchorage.learning.task_checkpoint import Checkpointing
from anchorage.transport.messages import Report

__all__ = [
    "Checkpointing",
    "Examine",
    "Networks",
    "TorchServerLearner",
    "TorchSiloLearner",
    "build_server_learner",
    "build_silo_learner",
    "train_on_anchors_alone",
]


def build_server_learner(
    *,
    model: ModelDescription,
    method: ResolvedMethod,
    seed: int,
    anchors: ImageSet | None = None,
    validation: ImageSet | None = None,
    test: ImageSet | None = None,
    device: str = "cpu",
    initial: Path | None = None,
    rounds: int = 0,
    after: int = 0,
    embeddings: Path | None = None,
    pictured: Embeddings | None = None,
) -> TorchServerLearner:
    """Return the server's learner; see `TorchServerLearner` for the parameters and the failures.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` or ``auto``.
    initial : Path, optional
        Where ``model.initial`` lies.
    rounds : int
        Rounds of the run, over which a cosine schedule falls.
    """
    images = {"anchors": anchors, "validation": validation, "test": test}
    with naming_pieces():
        return TorchServerLearner(
            model, method, seed, images, find_device(device), initial, rounds, after, embeddings, pictured
        )


def build_silo_learner(
    *,
    run: RunDescription,
    silo: str,
    labels: str,
    images: ImageSet,
    state: Path,
    device: str,
    networks: Networks | None = None,
    examine: Examine | None = None,
    dp_sgd: DpSgd | None = None,
    checkpointing: Checkpointing | None = None,
    devices: DeviceGroup | None = None,
    embeddings: Path | None = None,
) -> TorchSiloLearner:
    """Return a silo's learner; see `TorchSiloLearner` for the parameters and the failures.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` or ``auto``.
    """
    where = device_of(device, devices.rank, devices.count) if devices else find_device(device)
    with naming_pieces():
        return TorchSiloLearner(
            run, silo, labels, images, state, where, networks, examine, dp_sgd, checkpointing, devices, embeddings
        )


def train_on_anchors_alone(
    *,
    model: ModelDescription,
    method: ResolvedMethod,
    seed: int,
    anchors: ImageSet,
    test: ImageSet,
    rounds: int,
    device: str = "cpu",
    initial: Path | None = None,
    validation: ImageSet | None = None,
    components: ResolvedMethod | None = None,
) -> Report:
    """Return the report of the same model, seed and server training without any silo, after the same number of rounds.

    Parameters
    ----------
    validation : ImageSet, optional
        What a method chooses by.
    components : ResolvedMethod, optional
        Method of a round before, which finds the principal components that the classifier sees, here of the anchors' features.

    Raises
    ------
    AnchorageError
        The method does not train at the server, so there is nothing to compare with.
    """
    learner = build_server_learner(
        model=model,
        method=method,
        seed=seed,
        anchors=anchors,
        validation=validation,
        test=test,
        device=device,
        initial=initial,
        rounds=rounds,
    )
    if components is None:
        weights = learner.initialise()
    else:
        finder = build_server_learner(
            model=model, method=components, seed=seed, anchors=anchors, device=device, initial=initial
        )
        weights = learner.adopt(finder.train(finder.initialise(), 1)[0])
    for round_number in range(1, rounds + 1):
        weights, _ = learner.train(weights, round_number)
    return learner.test(weights, rounds)

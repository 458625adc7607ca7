"""A federation played in this process, whose model the tests look at."""

from pathlib import Path

import numpy as np

from anchorage.api.files import Study
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods import resolve
from anchorage.simulation.images import DecodedImages
from anchorage.simulation.run import Simulation


def play_study(
    study: Study, data: Path, state: Path, *, moves: bool, decoded: DecodedImages | None = None
) -> Simulation:
    """Play all rounds of a federation; its last one is committed with a finite model.

    Parameters
    ----------
    study : Study
        The documents.
    data : Path
        Folder of the claims.
    state : Path
        Folder for what silos keep.
    moves : bool
        Whether the last model must be another one than the first; else it must be the same.
    decoded : DecodedImages, optional
        Images that other plays decoded.
    """
    simulation = Simulation(study, data, state, decoded=decoded)
    record = simulation.play()
    spec, last = study.federation.spec, simulation.store.latest()
    assert last is not None and record.round == simulation.run.ends[-1]
    assert any(silo.state == "Counted" for silo in record.silos)
    reached = last.model.arrays()
    assert all(np.isfinite(array).all() for array in reached.values())
    first = build_model(spec.model_description, TrainingMethod.of(resolve(spec.method, spec.task)), spec.seed)
    start = {name: tensor.numpy() for name, tensor in first.state_dict().items() if name in reached}
    assert start and any(not np.array_equal(array, reached[name]) for name, array in start.items()) == moves
    return simulation

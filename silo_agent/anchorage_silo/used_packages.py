"""Which packages of other authors a run uses at a silo, by their metadata alone: none of them is loaded."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from anchorage.api.piece import DECODERS, providers, versions_of
from anchorage.api.run import RunDescription
from anchorage.methods.registry import preset_providers
from anchorage_silo.config import SiloConfig
from anchorage_silo.limits import stages_of


def used_packages(run: RunDescription, config: SiloConfig) -> Mapping[str, str]:
    """Return the versions, by name, of the packages from which the trainer takes what the run and the silo's data section name, and decoders.

    Where metadata leave open which of several packages has a piece, all of them are named.
    """
    return versions_of(_points(run, config))


def _points(run: RunDescription, config: SiloConfig) -> Iterator[EntryPoint]:
    for name in _names(run, config):
        yield from providers(name)
    for method, _, _ in stages_of(run):
        yield from preset_providers(method.name)
    if config.data is not None:
        yield from entry_points(group=DECODERS)


def _names(run: RunDescription, config: SiloConfig) -> Iterator[str]:
    model = run.model
    yield from (model.network, model.augmentation, model.task.name)
    if model.intensity is not None:
        yield model.intensity.name
    if config.data is not None:
        yield config.data.format
    for method, _, _ in stages_of(run):
        yield from (piece.name for piece in method.pieces())

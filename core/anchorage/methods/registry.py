"""The presets that exist: those of this package, and those that other packages declare as entry points."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PRESET_BROKEN
from anchorage.api.piece import load_entry_point
from anchorage.methods.bounds import FEDAVG_SL, FEDPROX_SL, LOWER_BOUND, SOLO, UPPER_BOUND
from anchorage.methods.cbafed import CBAFED, CBAFED_LOWER_BOUND
from anchorage.methods.consistency import FEDAVG_FIXMATCH, FEDAVG_UDA, FEDPROX_FIXMATCH, FEDPROX_UDA, SAGE
from anchorage.methods.dvw import DVW, DVW_GMEAN, DVW_MCC
from anchorage.methods.fedanchor import (
    FEDANCHOR,
    FEDANCHOR_ENSEMBLE,
    FEDANCHOR_MIX,
    FEDANCHOR_NO_CONTRASTIVE,
    FEDANCHOR_NO_MIXUP,
    FEDANCHOR_SERVER_MIXUP,
)
from anchorage.methods.fedasync import FEDASYNC, FEDASYNC_HINGE, FEDASYNC_POLYNOMIAL
from anchorage.methods.fedavg import BALANCED_SOFTMAX, FEDAVG, FEDPROX
from anchorage.methods.fedcon import FEDCON
from anchorage.methods.fedcopl import FEDCOPL_BUDGET
from anchorage.methods.fedmatch import FEDMATCH, FEDMATCH_SERVER
from anchorage.methods.fedopt import FEDADAGRAD, FEDADAM, FEDAVGM, FEDYOGI
from anchorage.methods.fedperl import FEDPERL
from anchorage.methods.fl2 import FL2
from anchorage.methods.imfedsemi import IMFEDSEMI
from anchorage.methods.mafl import (
    FEDMIX,
    FEDPROX_FEDMIX,
    FEDPROX_LOCAL_MIX,
    FEDPROX_NAIVE_MIX,
    GLOBAL_MIXUP,
    LOCAL_MIX,
    NAIVE_MIX,
)
from anchorage.methods.metis import ASYNC_DVW, ASYNC_DVW_ADAPTIVE, ASYNC_FEDAVG, SYNC_DVW, SYNC_FEDAVG
from anchorage.methods.moments import MOMENTS_HEAD
from anchorage.methods.moon import MOON, MOON_L2
from anchorage.methods.preset import Preset
from anchorage.methods.protofssl import PROTOFSSL
from anchorage.methods.rscfed import RSCFED
from anchorage.methods.scaffold import SCAFFOLD
from anchorage.methods.self_supervised import FEDBARLOW, FEDBYOL, FEDCLR, FEDEMA, FEDSIMSIAM, LDAWA, ORCHESTRA
from anchorage.methods.semianagg import FEDAVG_SEMI, SEMIANAGG, SEMIANAGG_CODE, SEMIANAGG_SECOND_SEED
from anchorage.methods.semifl import FIXMATCH_ALTERNATE, SEMIFL, SEMIFL_NO_MIXUP, SUPERVISED
from anchorage.methods.two_heads import FEDROD, FEDROD_DUAL, ORIG_ACR, SSIL_CDM, SSIL_CDM_FEDAVG_SEMI

ENTRY_POINTS = "anchorage.methods"
BUILT_IN = (
    FEDAVG,
    FEDPROX,
    BALANCED_SOFTMAX,
    UPPER_BOUND,
    LOWER_BOUND,
    SOLO,
    FEDAVGM,
    FEDADAGRAD,
    FEDADAM,
    FEDYOGI,
    MOON,
    MOON_L2,
    SCAFFOLD,
    FEDMIX,
    NAIVE_MIX,
    LOCAL_MIX,
    GLOBAL_MIXUP,
    FEDPROX_FEDMIX,
    FEDPROX_NAIVE_MIX,
    FEDPROX_LOCAL_MIX,
    SUPERVISED,
    FEDAVG_SL,
    FEDPROX_SL,
    FEDAVG_FIXMATCH,
    FEDPROX_FIXMATCH,
    FEDAVG_UDA,
    FEDPROX_UDA,
    SAGE,
    FEDPERL,
    PROTOFSSL,
    FIXMATCH_ALTERNATE,
    FEDCON,
    SEMIFL,
    SEMIFL_NO_MIXUP,
    FL2,
    IMFEDSEMI,
    FEDCOPL_BUDGET,
    FEDMATCH,
    FEDMATCH_SERVER,
    MOMENTS_HEAD,
    FEDANCHOR,
    FEDANCHOR_MIX,
    FEDANCHOR_NO_MIXUP,
    FEDANCHOR_SERVER_MIXUP,
    FEDANCHOR_NO_CONTRASTIVE,
    FEDANCHOR_ENSEMBLE,
    FEDAVG_SEMI,
    SEMIANAGG,
    SEMIANAGG_CODE,
    SEMIANAGG_SECOND_SEED,
    FEDROD,
    FEDROD_DUAL,
    SSIL_CDM,
    SSIL_CDM_FEDAVG_SEMI,
    ORIG_ACR,
    RSCFED,
    CBAFED_LOWER_BOUND,
    CBAFED,
    FEDBARLOW,
    FEDCLR,
    FEDSIMSIAM,
    FEDBYOL,
    FEDEMA,
    LDAWA,
    ORCHESTRA,
    SYNC_FEDAVG,
    ASYNC_FEDAVG,
    DVW,
    DVW_GMEAN,
    DVW_MCC,
    SYNC_DVW,
    ASYNC_DVW,
    ASYNC_DVW_ADAPTIVE,
    FEDASYNC,
    FEDASYNC_POLYNOMIAL,
    FEDASYNC_HINGE,
)


class Presets(Mapping[str, Preset]):
    """Presets by name; those of other packages are loaded at the first look.

    Raises
    ------
    AnchorageError
        On the first look: a package's preset cannot be loaded, is no `Preset`, or its name is taken.
    """

    def __getitem__(self, name: str) -> Preset:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @cached_property
    def _by_name(self) -> Mapping[str, Preset]:
        presets: dict[str, Preset] = {}
        for preset in BUILT_IN:
            _register(presets, preset, "anchorage")
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
            _register(presets, _load(point), point.value)
        return presets


def _register(presets: dict[str, Preset], preset: Preset, origin: str) -> None:
    if preset.name in presets:
        raise AnchorageError(
            PRESET_BROKEN,
            f"the method {preset.name} of {origin} is there already; rename it or remove the package that adds it",
        )
    presets[preset.name] = preset


def _load(point: EntryPoint) -> Preset:
    preset = load_entry_point(point)
    if not isinstance(preset, Preset):
        raise AnchorageError(
            PRESET_BROKEN,
            f"the entry point {point.name} = {point.value} is {type(preset).__name__}, not a Preset; mend its package",
        )
    return preset


PRESETS: Mapping[str, Preset] = Presets()

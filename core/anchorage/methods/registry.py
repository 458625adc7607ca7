"""The presets that exist: those of this package, and those that other packages declare as entry points."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PRESET_BROKEN
from anchorage.api.piece import load_entry_point
from anchorage.methods.bounds import LOWER_BOUND, SOLO, UPPER_BOUND
from anchorage.methods.cbafed import CBAFED, CBAFED_LOWER_BOUND
from anchorage.methods.consistency import FEDAVG_FIXMATCH, FEDAVG_UDA, SAGE
from anchorage.methods.dvw import DVW
from anchorage.methods.fedanchor import FEDANCHOR
from anchorage.methods.fedasync import FEDASYNC
from anchorage.methods.fedavg import FEDAVG, FEDPROX
from anchorage.methods.fedcon import FEDCON
from anchorage.methods.fedcopl import FEDCOPL_BUDGET
from anchorage.methods.fedmatch import FEDMATCH, FEDMATCH_SERVER
from anchorage.methods.fedopt import FEDADAGRAD, FEDADAM, FEDAVGM, FEDYOGI
from anchorage.methods.fedperl import FEDPERL
from anchorage.methods.fl2 import FL2
from anchorage.methods.imfedsemi import IMFEDSEMI
from anchorage.methods.mafl import FEDMIX, GLOBAL_MIXUP, LOCAL_MIX, NAIVE_MIX
from anchorage.methods.metis import ASYNC_DVW, ASYNC_DVW_ADAPTIVE, ASYNC_FEDAVG, SYNC_DVW, SYNC_FEDAVG
from anchorage.methods.moments import MOMENTS_HEAD, PRINCIPAL_COMPONENTS, SHARES_HEAD
from anchorage.methods.moon import MOON
from anchorage.methods.preset import Preset
from anchorage.methods.protofssl import PROTOFSSL
from anchorage.methods.rscfed import RSCFED
from anchorage.methods.scaffold import SCAFFOLD
from anchorage.methods.self_supervised import FEDBARLOW, FEDBYOL, FEDCLR, FEDEMA, FEDSIMSIAM, LDAWA, ORCHESTRA
from anchorage.methods.semianagg import FEDAVG_SEMI, SEMIANAGG
from anchorage.methods.semifl import FIXMATCH_ALTERNATE, SEMIFL, SUPERVISED
from anchorage.methods.two_heads import FEDROD, ORIG_ACR, SSIL_CDM

ENTRY_POINTS = "anchorage.methods"
BUILT_IN = (
    FEDAVG,
    FEDPROX,
    UPPER_BOUND,
    LOWER_BOUND,
    SOLO,
    FEDAVGM,
    FEDADAGRAD,
    FEDADAM,
    FEDYOGI,
    MOON,
    SCAFFOLD,
    FEDMIX,
    NAIVE_MIX,
    LOCAL_MIX,
    GLOBAL_MIXUP,
    SUPERVISED,
    FEDAVG_FIXMATCH,
    FEDAVG_UDA,
    SAGE,
    FEDPERL,
    PROTOFSSL,
    FIXMATCH_ALTERNATE,
    FEDCON,
    SEMIFL,
    FL2,
    IMFEDSEMI,
    FEDCOPL_BUDGET,
    FEDMATCH,
    FEDMATCH_SERVER,
    MOMENTS_HEAD,
    SHARES_HEAD,
    PRINCIPAL_COMPONENTS,
    FEDANCHOR,
    FEDAVG_SEMI,
    SEMIANAGG,
    FEDROD,
    SSIL_CDM,
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
    SYNC_DVW,
    ASYNC_DVW,
    ASYNC_DVW_ADAPTIVE,
    FEDASYNC,
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

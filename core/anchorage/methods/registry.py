"""The presets that exist: those of this package, and those that other packages declare as entry points."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PRESET_BROKEN
from anchorage.api.piece import METHODS, is_called, load_entry_point
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
    """Presets by name.

    Of other packages that one is loaded whose entry point is called so, whatever the case and without dashes and underscores; all of them where all
    names are asked for.

    Raises
    ------
    AnchorageError
        On the first look: a package's preset cannot be loaded, is no `Preset`, its name is taken, or its entry point is called otherwise.
    """

    def __init__(self) -> None:
        self._known = {preset.name: preset for preset in BUILT_IN}
        self._loaded: set[str] = set()
        self.stand_in: Callable[[str], Preset] | None = None
        """Returns what stands for a preset of another package in a process that loads none of them; errors as of a look."""

    def __getitem__(self, name: str) -> Preset:
        if name not in self._known and (points := preset_providers(name)):
            if self.stand_in is not None:
                return self.stand_in(name)
            self._load(points)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        if self.stand_in is None:
            self._load(_points())
        return iter(self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, points: Iterable[EntryPoint]) -> None:
        for point in points:
            if point.value in self._loaded:
                continue
            preset = _load(point)
            if preset.name in self._known:
                raise _broken(
                    f"the method {preset.name} of {point.value} is there already; rename it or remove the package that adds it"
                )
            if not is_called(point, preset.name):
                raise _broken(
                    f"the entry point {point.name} = {point.value} is the method {preset.name}; call both the same"
                )
            self._known[preset.name] = preset
            self._loaded.add(point.value)


def _points() -> Sequence[EntryPoint]:
    return sorted(entry_points(group=METHODS), key=lambda point: (point.name, point.value))


def preset_providers(name: str) -> Sequence[EntryPoint]:
    """Return the entry points of other packages that provide a preset of this name, by their metadata alone."""
    return [point for point in _points() if is_called(point, name)]


def _broken(message: str) -> AnchorageError:
    return AnchorageError(PRESET_BROKEN, message)


def _load(point: EntryPoint) -> Preset:
    preset = load_entry_point(point)
    if not isinstance(preset, Preset):
        raise _broken(
            f"the entry point {point.name} = {point.value} is {type(preset).__name__}, not a Preset; mend its package"
        )
    return preset


PRESETS = Presets()

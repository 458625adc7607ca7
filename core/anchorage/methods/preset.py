"""What a method declares: which piece fills each slot, what becomes known through it, and where it comes from."""

from dataclasses import dataclass
from typing import Any, Literal

from anchorage.api.method import Local, ResolvedMethod
from anchorage.api.piece import AuxiliaryArray
from anchorage.pieces.aggregation.mean import Mean
from anchorage.pieces.batch_norm.average import Average
from anchorage.pieces.encoding.float32 import Float32
from anchorage.pieces.input_mixing.none import NoInputMixing
from anchorage.pieces.local_loss.task_loss import TaskLoss
from anchorage.pieces.mixup.none import NoMixup
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.none import NoPseudoLabels
from anchorage.pieces.regulariser.none import NoRegulariser
from anchorage.pieces.second_head.none import NoSecondHead
from anchorage.pieces.self_supervised.none import NoSelfSupervision
from anchorage.pieces.server_step.replace import Replace
from anchorage.pieces.server_training.none import NoServerTraining
from anchorage.pieces.weighting.sample_count import SampleCount

Mode = Literal["Synchronous", "Asynchronous"]
Labels = Literal["None", "All", "Partial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One method of a paper as a piece in every slot (methods reference, section 3)."""

    slots: ResolvedMethod
    """Every slot filled, its name the preset's."""

    summary: str
    """One sentence for a list."""

    setting: str
    """Where the labels are, one phrase."""

    labels: tuple[Labels, ...]
    """Values of a silo's ``spec.labels`` that the method can use."""

    protocols: tuple[Mode, ...] = ("Synchronous",)
    """Values of ``spec.protocol.mode`` that the method allows."""

    reveals_to_server: str
    """What the server learns beyond the weights (methods reference, section 10)."""

    reveals_to_silos: str
    """What silos learn of each other and of the server."""

    source: str
    """Paper, with equations or algorithms, and the section of the methods reference."""

    advice: str = ""
    """Plain words: what it assumes, when to use it, what it costs; those on the methods of this package stand in ``advice.md``."""

    every_label: bool = False
    """Whether every silo must have all labels: an upper bound with labels missing bounds nothing."""

    @property
    def name(self) -> str:
        """The name that a federation's ``spec.method.name`` gives."""
        return self.slots.name

    @property
    def down(self) -> tuple[AuxiliaryArray, ...]:
        """What travels beside the model to the silos."""
        return auxiliary_arrays(self.slots, up=False)

    @property
    def up(self) -> tuple[AuxiliaryArray, ...]:
        """What travels beside the update to the server."""
        return auxiliary_arrays(self.slots, up=True)


def auxiliary_arrays(method: ResolvedMethod, *, up: bool) -> tuple[AuxiliaryArray, ...]:
    """Return what a method's pieces and its validation cycle send beside the model, to the server or to the silos."""
    cycle = method.local.cycle.auxiliary() if method.local.cycle else ()
    every = [*cycle, *(array for piece in method.pieces() for array in piece.auxiliary())]
    return tuple({array.name: array for array in every if array.up is up}.values())


def slots(name: str, **pieces: Any) -> ResolvedMethod:
    """Fill the slots that a method leaves open with plain FedAvg's pieces, and its local training likewise."""
    plain: dict[str, Any] = {
        "local_loss": TaskLoss(),
        "second_head": NoSecondHead(),
        "self_supervised": NoSelfSupervision(),
        "pseudo_labels": NoPseudoLabels(),
        "mixup": NoMixup(),
        "input_mixing": NoInputMixing(),
        "regulariser": NoRegulariser(),
        "server_training": NoServerTraining(),
        "weighting": SampleCount(),
        "aggregation": Mean(),
        "batch_norm": Average(),
        "server_step": Replace(),
        "encoding": Float32(),
    }
    local: Local = pieces.pop("local", None) or Local()
    if local.optimiser is None:
        local = local.model_copy(update={"optimiser": Sgd()})
    return ResolvedMethod(name=name, local=local, **{**plain, **{s: p for s, p in pieces.items() if p is not None}})

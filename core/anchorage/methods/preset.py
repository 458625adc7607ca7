"""What a method declares: which piece fills each slot, what becomes known through it, and where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anchorage.api.method import Local, ResolvedMethod
from anchorage.api.piece import PIECES, AuxiliaryArray, Piece
from anchorage.api.task import Task
from anchorage.learning.hooks import LearningHooks
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
from anchorage.pieces.slots import (
    Aggregation,
    BatchNorm,
    InputMixing,
    LocalLoss,
    Mixup,
    PseudoLabels,
    Regulariser,
    SecondHead,
    SelfSupervised,
    ServerStep,
    ServerTraining,
    UpdateEncoding,
    Weighting,
)
from anchorage.pieces.weighting.sample_count import SampleCount

Mode = Literal["Synchronous", "Asynchronous"]
Labels = Literal["None", "All", "Partial"]

OF_FINDINGS = "; of several findings per image also how many labelled images have each"
"""What is revealed by counts of labels (`anchorage.pieces.finding_counts`): of a silo to the server, of all of them together to silos."""


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

    by_task: Mapping[str, Mapping[str, Piece]] = field(default_factory=dict)
    """What stands in slots in place of `slots` where pieces of these are of one class per image: counterparts by the task's name and the slot."""

    @property
    def name(self) -> str:
        """The name that a federation's ``spec.method.name`` gives."""
        return self.slots.name

    def slots_of(self, task: Task | type[Task] | None) -> ResolvedMethod:
        """Return every slot as it is for a task; None: where an image is of one class."""
        task_pieces = {} if task is None else self.by_task.get(task.name, {})
        return self.slots.model_copy(update=dict(task_pieces)) if task_pieces else self.slots

    def serves(self, task: type[Task]) -> bool:
        """Return whether its pieces, as they are without a document's changes, can serve a task."""
        pieces = list(self.slots_of(task).pieces())
        if task.gives_maps and any(map(of_vectors, pieces)):
            return False
        return all(piece.tasks is None or task.name in piece.tasks for piece in pieces)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of this package's tasks that it serves."""
        known = {
            name: kind
            for name, kind in PIECES.list_loaded("task").items()
            if "." not in name and issubclass(kind, Task)
        }
        return tuple(name for name, task in known.items() if self.serves(task))

    @property
    def sent(self) -> frozenset[str]:
        """Names of the arrays that silos send beside the update, whatever the task."""
        every = (
            self.slots,
            *(self.slots.model_copy(update=dict(task_pieces)) for task_pieces in self.by_task.values()),
        )
        return frozenset(array.name for method in every for array in auxiliary_arrays(method, up=True))

    @property
    def down(self) -> tuple[AuxiliaryArray, ...]:
        """What travels beside the model to the silos."""
        return auxiliary_arrays(self.slots, up=False)

    @property
    def up(self) -> tuple[AuxiliaryArray, ...]:
        """What travels beside the update to the server."""
        return auxiliary_arrays(self.slots, up=True)


def of_vectors(piece: Piece) -> bool:
    """Return whether a piece serves networks that give one vector for each image, and no maps."""
    return isinstance(piece, LearningHooks) and (piece.projection_head or piece.needs_vectors)


def auxiliary_arrays(method: ResolvedMethod, *, up: bool) -> tuple[AuxiliaryArray, ...]:
    """Return what a method's pieces and its validation cycle send beside the model, to the server or to the silos."""
    cycle = method.local.cycle.auxiliary() if method.local.cycle else ()
    every = [*cycle, *(array for piece in method.pieces() for array in piece.auxiliary())]
    return tuple({array.name: array for array in every if array.up is up}.values())


def slots(
    name: str,
    *,
    local: Local | None = None,
    local_loss: LocalLoss | None = None,
    second_head: SecondHead | None = None,
    self_supervised: SelfSupervised | None = None,
    pseudo_labels: PseudoLabels | None = None,
    mixup: Mixup | None = None,
    input_mixing: InputMixing | None = None,
    regulariser: Regulariser | None = None,
    server_training: ServerTraining | None = None,
    weighting: Weighting | None = None,
    aggregation: Aggregation | None = None,
    batch_norm: BatchNorm | None = None,
    server_step: ServerStep | None = None,
    encoding: UpdateEncoding | None = None,
) -> ResolvedMethod:
    """Fill the slots that a method leaves open with plain FedAvg's pieces, and its local training likewise."""
    local = local or Local()
    if local.optimiser is None:
        local = local.model_copy(update={"optimiser": Sgd()})
    return ResolvedMethod(
        name=name,
        local=local,
        local_loss=local_loss or TaskLoss(),
        second_head=second_head or NoSecondHead(),
        self_supervised=self_supervised or NoSelfSupervision(),
        pseudo_labels=pseudo_labels or NoPseudoLabels(),
        mixup=mixup or NoMixup(),
        input_mixing=input_mixing or NoInputMixing(),
        regulariser=regulariser or NoRegulariser(),
        server_training=server_training or NoServerTraining(),
        weighting=weighting or SampleCount(),
        aggregation=aggregation or Mean(),
        batch_norm=batch_norm or Average(),
        server_step=server_step or Replace(),
        encoding=encoding or Float32(),
    )

"""What a method declares: its slots, what travels beside the model, what that reveals, and where it comes from."""

from dataclasses import dataclass
from typing import Literal

from anchorage.api.method import (
    BatchNorm,
    Decomposition,
    Heads,
    InputMixing,
    Local,
    Mixup,
    PseudoLabels,
    Regulariser,
    ResolvedMethod,
    SelfSupervised,
    ServerStep,
    ServerTraining,
    Supervised,
    Weighting,
)

Mode = Literal["Synchronous", "Asynchronous"]
Labels = Literal["None", "All", "Partial"]


@dataclass(frozen=True, slots=True)
class SideChannel:
    """A small array that travels beside the model.

    Parameters
    ----------
    name : str
        Key in the task's or the announcement's side channel.
    shape : str
        Shape and dtype, such as ``[C, 128] float32``.
    meaning : str
        What the numbers are, one phrase.
    """

    name: str
    shape: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Preset:
    """One method of a paper as a choice in every slot (METHODS.md section 3).

    Parameters
    ----------
    slots : ResolvedMethod
        Every slot filled, its name the preset's.
    summary : str
        One sentence for a list.
    setting : str
        Where the labels are, one phrase.
    labels : tuple of str
        Values of a silo's ``spec.labels`` that the method can use.
    protocols : tuple of str
        Values of ``spec.protocol.mode`` that the method allows.
    down, up : tuple of SideChannel
        What travels beside the model, to the silos and to the server.
    reveals_to_server, reveals_to_silos : str
        What becomes known beyond the weights (METHODS.md section 10).
    source : str
        Paper, with equations or algorithms, and the section of METHODS.md.
    results : str
        Where published numbers stand, of a method that ``published.csv`` has none of; empty where there are none.
    advice : str
        Plain words: what it assumes, when to use it, what it costs.
    """

    slots: ResolvedMethod
    summary: str
    setting: str
    labels: tuple[Labels, ...]
    protocols: tuple[Mode, ...]
    down: tuple[SideChannel, ...]
    up: tuple[SideChannel, ...]
    reveals_to_server: str
    reveals_to_silos: str
    source: str
    results: str
    advice: str = ""

    @property
    def name(self) -> str:
        """The name that a federation's ``spec.method.name`` gives."""
        return self.slots.name


def slots(
    name: str,
    *,
    supervised: Supervised | None = None,
    heads: Heads | None = None,
    self_supervised: SelfSupervised | None = None,
    pseudo_labels: PseudoLabels | None = None,
    decomposition: Decomposition | None = None,
    mixup: Mixup | None = None,
    input_mixing: InputMixing | None = None,
    regulariser: Regulariser | None = None,
    server_training: ServerTraining | None = None,
    weighting: Weighting | None = None,
    batch_norm: BatchNorm | None = None,
    server_step: ServerStep | None = None,
    local: Local | None = None,
) -> ResolvedMethod:
    """Fill the slots that a method leaves open with plain FedAvg's choices."""
    return ResolvedMethod(
        name=name,
        supervised=supervised or Supervised(),
        heads=heads or Heads(),
        self_supervised=self_supervised or SelfSupervised(),
        pseudo_labels=pseudo_labels or PseudoLabels(),
        decomposition=decomposition or Decomposition(),
        mixup=mixup or Mixup(),
        input_mixing=input_mixing or InputMixing(),
        regulariser=regulariser or Regulariser(),
        server_training=server_training or ServerTraining(),
        weighting=weighting or Weighting(),
        batch_norm=batch_norm or BatchNorm(),
        server_step=server_step or ServerStep(),
        local=local or Local(),
    )

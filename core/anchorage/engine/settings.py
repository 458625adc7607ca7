"""What a run's rounds are bound by."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anchorage.transport.bounds import MOST_IMAGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from anchorage.api.task import Task
    from anchorage.transport.secure_aggregation.member import Keys


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """The part of a federation's document that the engine follows.

    Parameters
    ----------
    rounds : int
        Synchronous: rounds. Asynchronous: commits, one update each.
    seed : int
        The run's seed.
    silos : tuple of str
        The members at first, in the order of the sums; a silo that comes without being one of them joins behind them.
    min_silos : int
        Quorum: silos that must answer (with an update, or that they have nothing to train on) for a round to count.
    silos_per_round : int or None
        Silos sampled per round; None takes all.
    round_deadline_seconds : float
        How long a round waits for its silos, and how long the run waits for a quorum to connect.
    awaits_first_silos : bool
        Whether the run waits without limit until enough silos were connected once, as where a cluster would start it again at once.
    active_deadline_seconds : float or None
        How long the whole run may take from its first start; None does not bound it.
    evaluate_every : int
        Rounds between two evaluations; the last round is always evaluated.
    average_decay : float or None
        Synchronous: decay of the average of global models that is evaluated and committed; None: each is itself.
    held_out_task : Task or None
        Task by whose tallies silos score the new model on images that they do not train on; None: they do not.
    most_images : int
        Images that a silo may count; the update of one that counts more is refused.
    fractional_bits : int or None
        Secure aggregation: fractional bits of the sums; None: updates arrive as they are.
    masked : bool
        Whether those updates are masked; a simulation's are not.
    least_summed : int
        Secure aggregation: silos whose sum may become known, and no fewer.
    check_keys : callable or None
        Secure aggregation with masks: ``check_keys(task, silo, keys)`` raises ProtocolError where keys are not those of this member for this task.
    model_coding : str or None
        Synchronous: name of the coding in which models to train travel; None: as they are.
    embeddings : str or None
        Projection of the embeddings of validation images, ``PCA`` or ``TSNE``, in records of a few rounds; None: records have none.
    documents : str
        Digest of what in the federation's document decides the model, for the records of rounds.
    """

    rounds: int
    seed: int
    silos: tuple[str, ...]
    min_silos: int = 1
    silos_per_round: int | None = None
    round_deadline_seconds: float = 1800.0
    awaits_first_silos: bool = False
    active_deadline_seconds: float | None = None
    evaluate_every: int = 1
    average_decay: float | None = None
    held_out_task: "Task | None" = None
    most_images: int = MOST_IMAGES
    fractional_bits: int | None = None
    masked: bool = True
    least_summed: int = 3
    check_keys: "Callable[[str, str, Keys], None] | None" = None
    model_coding: str | None = None
    documents: str = ""
    embeddings: Literal["PCA", "TSNE"] | None = None

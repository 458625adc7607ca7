"""Rules for methods: what a combination of slots, silos and protocol needs (METHODS.md section 3, last paragraph).

Any weighting may stand beside any pseudo-labels. In particular FedAnchor with SemiAnAgg weighting compares the features of the accepted
images with the random anchor's, and FedAnchor with DVW weighting lets silos without labels score models against the accepted pseudo-labels
of their validation split in that round.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anchorage.errors.documents import (
    BARRIER_ASYNCHRONOUS,
    CLASS_WITHOUT_ANCHORS,
    LABELS_MISSING,
    MEANINGLESS_OVERRIDE,
    NO_ANCHOR_DATA,
    PROTOCOL_REFUSED,
    SERVER_TRAINING_ASYNCHRONOUS,
    TOO_FEW_SILOS,
    UNKNOWN_METHOD,
)
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve, unknown_method
from anchorage.methods.unused import unused_overrides
from anchorage.spec.federation import Federation, FederationSpec, Silo
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.mistakes import Mistake

_METHOD = ("spec", "method")
_TYPE = "type"

BARRIERS = ("FedAvgSemi", "SemiAnAgg")
"""Weightings that normalise over the announcements of all silos of a round."""

BY_SELECTION = ("SelectedCount", "UsedCount", *BARRIERS)
"""Weightings by accepted pseudo-labels."""

LABELS_FIXED = ("AnchorSimilarity", "ReceivedModel")
"""Pseudo-labels that are made once per round."""

BY_REPRESENTATION = ("Moon", "FeatureDistance")
"""Regularisers that compare representations of labelled images."""


@dataclass(frozen=True)
class Plan:
    """A federation as the rules see it: its document, its silos, its method with every slot filled."""

    spec: FederationSpec
    silos: Sequence[Silo]
    method: ResolvedMethod

    @property
    def asynchronous(self) -> bool:
        """Whether every update counts as it arrives."""
        return self.spec.protocol.mode == "Asynchronous"

    @property
    def server_learns(self) -> bool:
        """Whether the server trains on labelled anchors."""
        return self.method.server_training.type == "Anchors"

    @property
    def labelled_silos(self) -> int:
        """Silos with labels."""
        return sum(silo.spec.labels != "None" for silo in self.silos)


def check(federation: Federation, silos: Sequence[Silo]) -> list[Mistake]:
    """Find what has no meaning in a federation's choice of method; not yet located.

    Raises
    ------
    AnchorageError
        Another package's preset is broken.
    """
    name = federation.spec.method.name
    if name not in PRESETS:
        return [Mistake(UNKNOWN_METHOD, (*_METHOD, "name"), unknown_method(name))]
    plan = Plan(federation.spec, silos, resolve(federation.spec.method))
    return [mistake for rule in RULES for mistake in rule(plan)]


def protocol_fits(plan: Plan) -> Iterator[Mistake]:
    """Barriers and server training need rounds; a preset may refuse a mode."""
    mode, kind, refused = ("spec", "protocol", "mode"), plan.method.weighting.type, False
    if plan.asynchronous and kind in BARRIERS:
        refused = True
        yield Mistake(
            BARRIER_ASYNCHRONOUS,
            mode,
            f"found Asynchronous, but the weighting {kind} normalises over the announcements of all silos of a round "
            "(a barrier); set Synchronous, or another weighting",
        )
    if plan.asynchronous and plan.server_learns:
        refused = True
        yield Mistake(
            SERVER_TRAINING_ASYNCHRONOUS,
            mode,
            "found Asynchronous, but the server trains on its anchors after each round's aggregation; set Synchronous, "
            "or serverTraining.type: None",
        )
    if plan.asynchronous and plan.method.server_step.type != "Replace":
        refused = True
        found = (
            f"found Asynchronous, but the server step {plan.method.server_step.type} takes the mean of a whole round"
        )
        yield Mistake(PROTOCOL_REFUSED, mode, f"{found}; set Synchronous, or serverStep.type: Replace")
    allowed = PRESETS[plan.method.name].protocols
    overridden = plan.spec.method.model_fields_set & {"weighting", "server_training", "server_step"}
    if plan.spec.protocol.mode not in allowed and not refused and not overridden:
        message = f"found {plan.spec.protocol.mode}, but {plan.method.name} allows {', '.join(allowed)}"
        yield Mistake(PROTOCOL_REFUSED, mode, message)
    if plan.asynchronous and plan.spec.protocol.silos_per_round is not None:
        path = ("spec", "protocol", "silosPerRound")
        message = "found a number, but an asynchronous protocol samples no silos: all train all the time; remove it"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def anchors_suffice(plan: Plan) -> Iterator[Mistake]:
    """Server training and labels by similarity need anchors of every class (METHODS.md 6.8)."""
    needs = ["server training"] if plan.server_learns else []
    if plan.method.pseudo_labels.type == "AnchorSimilarity":
        needs.append("pseudo-labels by AnchorSimilarity")
    if not needs:
        return
    data, classes = plan.spec.anchor_data, plan.spec.model.num_classes
    if data is None:
        message = f"found nothing, but {plan.method.name} with {' and '.join(needs)} needs labelled anchors; add it"
        yield Mistake(NO_ANCHOR_DATA, ("spec", "anchorData"), message)
    elif data.use == "Anchors" and 0 < data.anchors < classes:
        message = f"found {data.anchors}, but the model has {classes} classes and each needs an anchor; take more"
        yield Mistake(CLASS_WITHOUT_ANCHORS, ("spec", "anchorData", "anchors"), message)


def labels_somewhere(plan: Plan) -> Iterator[Mistake]:
    """Learning needs labels at a silo or at the server."""
    kind = plan.method.pseudo_labels.type
    if plan.labelled_silos or not plan.silos or kind == "AnchorSimilarity":
        return
    name = (*_METHOD, "name")
    if kind == "None":
        message = (
            f"found {plan.method.name}, whose silos learn from their own labels, but every silo has labels: None; "
            "label a silo, or choose a method with pseudo-labels"
        )
        yield Mistake(LABELS_MISSING, name, message)
    elif not plan.server_learns:
        message = (
            f"found {plan.method.name} with pseudo-labels by {kind}, but every silo has labels: None and the server "
            "trains on none; label a silo, or set serverTraining.type: Anchors with anchorData"
        )
        yield Mistake(LABELS_MISSING, name, message)


def mixup_has_its_sets(plan: Plan) -> Iterator[Mistake]:
    """The fix/mix pair needs labels that are fixed for a round: AnchorSimilarity's or the received model's at silos, the anchors' at the server."""
    at, path = plan.method.mixup.at, (*_METHOD, "mixup", "at")
    kind = plan.method.pseudo_labels.type
    if at in ("Server", "Both") and not plan.server_learns:
        message = f"found {at}, but the server trains on nothing; set serverTraining.type: Anchors, or mixup elsewhere"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)
    if at in ("Client", "Both") and kind not in LABELS_FIXED:
        message = (
            f"found {at}, but silos mix images whose labels are fixed for the round, and pseudoLabels.type {kind} "
            "fixes none; set AnchorSimilarity or ReceivedModel, or no mixup at the silos"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def representations_are_of_labelled_images(plan: Plan) -> Iterator[Mistake]:
    """MOON's term stands beside the loss on labelled images; the other local objectives have none of its representations."""
    kind = plan.method.regulariser.type
    if kind in BY_REPRESENTATION and plan.method.pseudo_labels.type != "None":
        message = (
            f"found {kind}, which compares representations of labelled images, but silos learn pseudo-labels by "
            f"{plan.method.pseudo_labels.type}; set regulariser.type: Proximal or None"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "regulariser", _TYPE), message)


def contrast_has_anchors(plan: Plan) -> Iterator[Mistake]:
    """The label contrastive loss is a part of server training."""
    if plan.method.server_training.contrastive == "Enabled" and not plan.server_learns:
        message = "found Enabled, but the server trains on nothing; set serverTraining.type: Anchors, or Disabled"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "serverTraining", "contrastive"), message)


def weighting_has_its_counts(plan: Plan) -> Iterator[Mistake]:
    """A weighting by accepted pseudo-labels needs some; DVW needs other silos that score."""
    kind, path = plan.method.weighting.type, (*_METHOD, "weighting", _TYPE)
    if kind in BY_SELECTION and plan.method.pseudo_labels.type == "None":
        message = (
            f"found {kind}, which weighs silos by accepted pseudo-labels, but there are none; set pseudoLabels.type"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)
    if kind == "DVW" and len(plan.silos) == 1:
        message = "found DVW, which has each model scored by the other silos, but there is 1 silo; add silos"
        yield Mistake(TOO_FEW_SILOS, path, message)


def labels_are_used(plan: Plan) -> Iterator[Mistake]:
    """The supervised term is of silos that train on their own labels."""
    own = plan.spec.method.supervised
    if own is not None and plan.method.pseudo_labels.type == "AnchorSimilarity":
        message = (
            f"found {own.type}, but AnchorSimilarity labels all images of a silo, so no silo trains on labels of its "
            "own; remove it"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "supervised", _TYPE), message)


def overrides_are_used(plan: Plan) -> Iterator[Mistake]:
    """A field that a user sets belongs to the type that its slot has."""
    yield from unused_overrides(plan.spec.method, plan.method)


RULES: tuple[Callable[[Plan], Iterator[Mistake]], ...] = (
    protocol_fits,
    anchors_suffice,
    labels_somewhere,
    mixup_has_its_sets,
    representations_are_of_labelled_images,
    contrast_has_anchors,
    weighting_has_its_counts,
    labels_are_used,
    overrides_are_used,
)

"""Rules for methods: what a combination of slots, silos and protocol needs (METHODS.md section 3, last paragraph).

Any weighting may stand beside any pseudo-labels. In particular FedAnchor with SemiAnAgg weighting compares the features of the accepted
images with the random anchor's, and FedAnchor with DVW weighting lets silos without labels score models against the accepted pseudo-labels
of their validation split in that round.
"""

from collections.abc import Callable, Iterator, Sequence

from anchorage.api.errors.documents import (
    CLASS_WITHOUT_ANCHORS,
    LABELS_MISSING,
    MEANINGLESS_OVERRIDE,
    NO_ANCHOR_DATA,
    TOO_FEW_SILOS,
    UNKNOWN_METHOD,
)
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import Mistake
from anchorage.methods.labelled_work import (
    mixed_images_have_labels,
    own_models_are_not_averaged,
    upper_bounds_have_every_label,
    variates_are_of_plain_steps,
)
from anchorage.methods.norms import RECOUNTED, batch_norm_fits
from anchorage.methods.plan import Plan
from anchorage.methods.protocols import cycles_are_of_labelled_images, mixing_is_plain, protocol_fits
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve, unknown_method
from anchorage.methods.second_heads import groups_reach_the_quorum, second_head_learns, views_agree_alone
from anchorage.methods.stages import stages_fit
from anchorage.methods.unused import unused_overrides
from anchorage.methods.without_labels import (
    learns_without_labels,
    self_supervision_is_the_only_loss,
    steps_are_told,
)

_METHOD = ("spec", "method")
_TYPE = "type"

BY_SELECTION = ("SelectedCount", "UsedCount", "FedAvgSemi", "SemiAnAgg")
"""Weightings by accepted pseudo-labels."""

LABELS_FIXED = ("AnchorSimilarity", "ReceivedModel")
"""Pseudo-labels that are made once per round."""

BY_REPRESENTATION = ("Moon", "FeatureDistance")
"""Regularisers that compare representations of labelled images."""


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
    return [*(mistake for rule in RULES for mistake in rule(plan)), *stages_fit(plan, RULES)]


def anchors_suffice(plan: Plan) -> Iterator[Mistake]:
    """Server training and labels by similarity need anchors of every class (METHODS.md 6.8)."""
    needs = ["server training"] if plan.server_learns else []
    if plan.method.pseudo_labels.type == "AnchorSimilarity":
        needs.append("pseudo-labels by AnchorSimilarity")
    if plan.method.batch_norm.policy in RECOUNTED:
        needs.append(f"batchNorm.policy {plan.method.batch_norm.policy}")
    if plan.method.batch_norm.policy == "Local" and plan.spec.evaluation is not None:
        needs.append("an evaluation of what batchNorm.policy Local leaves without statistics")
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
    if plan.labelled_silos or not plan.silos or kind == "AnchorSimilarity" or learns_without_labels(plan):
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


def parts_go_together(plan: Plan) -> Iterator[Mistake]:
    """Labels by helpers train the second part of split weights, and nothing else does; such models have no validation by pseudo-labels."""
    method, split = plan.method, plan.method.decomposition.type == "SigmaPsi"
    path = (*_METHOD, "decomposition", _TYPE)
    if split != (method.pseudo_labels.type == "Helpers"):
        message = (
            f"found {method.decomposition.type} with pseudoLabels.type {method.pseudo_labels.type}, but weights in two "
            "parts (SigmaPsi) and Helpers need each other; set both, or neither"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)
    elif split and (method.regulariser.type != "None" or method.weighting.type not in ("Uniform", "SampleCount")):
        message = (
            "found SigmaPsi with another regulariser or weighting, but its own terms hold the parts together; set "
            "regulariser.type: None and weighting.type: Uniform or SampleCount"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)
    decay = method.local.optimiser.weight_decay
    if split and float(decay):
        message = f"found {decay}, but a decay would pull both parts of a weight to 0 in every step of either; set 0"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "local", "optimiser", "weightDecay"), message)


def overrides_are_used(plan: Plan) -> Iterator[Mistake]:
    """A field that a user sets belongs to the type that its slot has."""
    yield from unused_overrides(plan.spec.method, plan.method)


RULES: tuple[Callable[[Plan], Iterator[Mistake]], ...] = (
    protocol_fits,
    mixing_is_plain,
    cycles_are_of_labelled_images,
    anchors_suffice,
    labels_somewhere,
    mixup_has_its_sets,
    representations_are_of_labelled_images,
    contrast_has_anchors,
    weighting_has_its_counts,
    labels_are_used,
    parts_go_together,
    self_supervision_is_the_only_loss,
    steps_are_told,
    second_head_learns,
    groups_reach_the_quorum,
    views_agree_alone,
    batch_norm_fits,
    variates_are_of_plain_steps,
    own_models_are_not_averaged,
    mixed_images_have_labels,
    upper_bounds_have_every_label,
    overrides_are_used,
)

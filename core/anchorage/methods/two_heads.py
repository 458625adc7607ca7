"""FedRoD and SSIL-CDM: methods with two heads, labels at some silos (methods reference, 6.12)."""

from dataclasses import replace

from anchorage.methods.preset import Preset, slots
from anchorage.methods.semianagg import FEDAVG_SEMI
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.second_head.balanced import Balanced
from anchorage.pieces.second_head.personal import Personal
from anchorage.pieces.second_head.personal_dual import PersonalDual
from anchorage.pieces.weighting.sample_count import SampleCount

_ADJUSTED = FixMatch(threshold="0.95", adjustment="Local")
_FROM = FEDAVG_SEMI.slots

FEDROD = replace(
    FEDAVG_SEMI,
    slots=_FROM.model_copy(update={"name": "FedRoD", "second_head": Personal()}),
    summary="FedAvgSemi with a second, personal head that stays at every labelled silo.",
    source="Chen and Chao 2022 (Fed-RoD), as SemiAnAgg's paper compares it; methods reference, 6.12",
    results="",
    advice=(
        "For labelled hospitals that want a model of their own beside the common one: the generic head learns as if "
        "classes were equally frequent and is what the server averages and tests; the personal head learns what is "
        "typical of its silo, is kept there and never sent. Unlabelled silos train the generic head alone."
    ),
)

FEDROD_DUAL = replace(
    FEDROD,
    slots=_FROM.model_copy(update={"name": "FedRoDDual", "second_head": PersonalDual()}),
    summary="FedRoD whose personal heads learn from unlabelled images, too.",
    source="SemiAnAgg's paper, baseline FedRoD Dual; methods reference, 6.12",
    advice=(
        "FedRoD for silos without labels that want a personal head as well: both heads learn the accepted "
        'pseudo-labels. The paper does not say what its "Dual" is; this is our reading.'
    ),
)

SSIL_CDM = Preset(
    slots=slots(
        "SSILCDM",
        second_head=Balanced(),
        pseudo_labels=_ADJUSTED,
        weighting=SampleCount(),
        local=_FROM.local,
    ),
    summary="A plain and a balanced head; pseudo-labels make up for the class shares that a silo guesses of itself.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous",),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg's paper, baseline SSIL-CDM (ACR of Wei and Gan 2023 in a federation); methods reference, 6.12",
    results="",
    advice=(
        "For rare classes and unlabelled silos whose class frequencies nobody knows: a silo keeps a running guess of "
        "its own frequencies, which never leaves it, and corrects its pseudo-labels by it. The balanced head is the one "
        "that is tested. A silo that has no image of a class comes to give its images that label: with such silos take "
        "OrigACR or adjustment None. Two strong views and a second model that labels make a step about twice as long as FixMatch's. "
        "There is no public federated code, so expect differences from the published figures."
    ),
)

SSIL_CDM_FEDAVG_SEMI = replace(
    SSIL_CDM,
    slots=SSIL_CDM.slots.model_copy(update={"name": "SSILCDMFedAvgSemi", "weighting": _FROM.weighting}),
    summary="SSILCDM whose average gives labelled and unlabelled silos a half each.",
    reveals_to_server=FEDAVG_SEMI.reveals_to_server,
    source="SemiAnAgg's paper, baseline SSIL-CDM with FedAvg-Semi; methods reference, 6.12",
    advice=(
        "SSILCDM where few of many silos have labels: the labelled ones get half of the average, and among the others "
        "those with more accepted pseudo-labels count more."
    ),
)

ORIG_ACR = replace(
    SSIL_CDM_FEDAVG_SEMI,
    slots=SSIL_CDM_FEDAVG_SEMI.slots.model_copy(
        update={"name": "OrigACR", "pseudo_labels": _ADJUSTED.model_copy(update={"adjustment": "Labelled"})}
    ),
    summary="SSILCDMFedAvgSemi whose silos are told the class shares of all labels and make up for those.",
    reveals_to_server="the class histogram of the silo's labels, and the number of accepted pseudo-labels",
    reveals_to_silos="the class shares of all labels",
    source='SemiAnAgg\'s paper, figure 12, "orig-ACR FL"; methods reference, 6.12',
    advice=(
        "As ACR does it in one place, for unlabelled silos whose classes are about as frequent as among the labels. "
        "Labelled silos tell the server how many images they have of each class."
    ),
)

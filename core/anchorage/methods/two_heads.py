"""FedRoD and SSIL-CDM: methods with two heads, labels at some silos (methods reference, 6.12)."""

from dataclasses import replace

from anchorage.methods.preset import Preset, slots
from anchorage.methods.semianagg import FEDAVG_SEMI
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.second_head.balanced import Balanced
from anchorage.pieces.second_head.personal import Personal
from anchorage.pieces.weighting.sample_count import SampleCount

_FROM = FEDAVG_SEMI.slots

FEDROD = replace(
    FEDAVG_SEMI,
    slots=_FROM.model_copy(update={"name": "FedRoD", "second_head": Personal()}),
    by_task={},
    reveals_to_server="the number of labelled images and of accepted pseudo-labels",
    reveals_to_silos="nothing beyond the global model",
    summary="FedAvgSemi with a second, personal head that stays at every labelled silo.",
    source="Chen and Chao 2022 (Fed-RoD), as SemiAnAgg's paper compares it; methods reference, 6.12",
)

SSIL_CDM = Preset(
    slots=slots(
        "SSILCDM",
        second_head=Balanced(),
        pseudo_labels=FixMatch(threshold="0.95", adjustment="Local"),
        weighting=SampleCount(),
        local=_FROM.local,
    ),
    summary="A plain and a balanced head, with pseudo-labels adjusted for the class shares that a silo estimates for itself.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of training images; with weighting: fedAvgSemi the number of labelled images and of accepted pseudo-labels",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg's paper, baseline SSIL-CDM (ACR of Wei and Gan 2023 in a federation); methods reference, 6.12",
)

ORIG_ACR = replace(
    SSIL_CDM,
    slots=SSIL_CDM.slots.model_copy(
        update={
            "name": "OrigACR",
            "pseudo_labels": FixMatch(threshold="0.95", adjustment="Labelled"),
            "weighting": _FROM.weighting,
        }
    ),
    summary="SSILCDM with FedAvgSemi's weighting and pseudo-labels adjusted for the class shares of all silos' labels.",
    reveals_to_server="the class histogram of the silo's labels, and the number of accepted pseudo-labels",
    reveals_to_silos="the class shares of all labels",
    source='SemiAnAgg\'s paper, figure 12, "orig-ACR FL"; methods reference, 6.12',
)

"""Metis' protocols: synchronous or asynchronous, weighted by images or by validation, with fixed or adaptive local work (methods reference, 6.14)."""

from dataclasses import replace

from anchorage.api.method import ValidationCycle
from anchorage.methods.dvw import DVW, METIS_LOCAL
from anchorage.methods.fedavg import FEDAVG
from anchorage.methods.preset import slots
from anchorage.pieces.weighting.sample_count import SampleCount

_BY_IMAGES = SampleCount()
_CACHE = "Stripelis et al. (Metis), Algorithm 1, community cache; methods reference, 6.14"

SYNC_FEDAVG = replace(
    FEDAVG,
    slots=slots("SyncFedAvg", weighting=_BY_IMAGES, local=METIS_LOCAL),
    summary="FedAvg in rounds with Metis' local work.",
    protocols=("Synchronous",),
    source="Stripelis et al. (Metis), section II; methods reference, 6.14",
    advice=(
        "The baseline of the Metis paper: FedAvg in which all hospitals take part in every round. The slowest one "
        "sets the pace; where hospitals are of very different speed, compare with `AsyncFedAvg`."
    ),
)

ASYNC_FEDAVG = replace(
    FEDAVG,
    slots=slots("AsyncFedAvg", weighting=_BY_IMAGES, local=METIS_LOCAL),
    summary="FedAvg without rounds: every arriving update takes the place of the silo's last one in the average.",
    protocols=("Asynchronous",),
    reveals_to_server="the number of training images; each update by itself, without a round's others to hide among",
    source=_CACHE,
    advice=(
        "For labelled hospitals of very different speed: none waits for another. The server keeps every hospital's last "
        "model on disk and averages them anew with each update, in the time of one model whatever the number of hospitals. "
        "The first to commit defines the model until the others have. Set `protocol.mode: Asynchronous`."
    ),
)

SYNC_DVW = replace(
    DVW,
    slots=DVW.slots.model_copy(update={"name": "SyncDVW"}),
    summary="DVW in rounds: all models of a round are scored by all silos, then averaged.",
    protocols=("Synchronous",),
)

ASYNC_DVW = replace(
    DVW,
    slots=DVW.slots.model_copy(update={"name": "AsyncDVW"}),
    summary="DVW without rounds: only the arriving model is scored, by all silos, with a fixed number of epochs.",
    protocols=("Asynchronous",),
    reveals_to_server=f"{DVW.reveals_to_server}; each update by itself",
    source=_CACHE,
    advice=(
        "DVW for hospitals of very different speed. An arriving model is scored by every hospital while it trains on; "
        "the weights of the others stay as they were. A fast hospital commits more often, but has one place in the "
        "average. Every model is sent to every hospital, as in DVW. Set `protocol.mode: Asynchronous`."
    ),
)

ASYNC_DVW_ADAPTIVE = replace(
    ASYNC_DVW,
    slots=slots(
        "AsyncDVWAdaptive",
        weighting=DVW.slots.weighting,
        local=METIS_LOCAL.model_copy(update={"cycle": ValidationCycle()}),
    ),
    summary="AsyncDVW whose silos train until their validation loss stands still or the others have moved on.",
    reveals_to_server=f"{ASYNC_DVW.reveals_to_server}; how many steps a silo trains, so how fast it is and learns",
    reveals_to_silos=f"{DVW.reveals_to_silos}; how many steps are committed in all",
    source="Stripelis et al. (Metis), section V (adaptive update frequency); methods reference, 6.14",
    advice=(
        "AsyncDVW that finds each hospital's number of epochs by itself: a cycle ends when the loss on its own "
        "validation images failed to fall more often than `local.cycle.tombstones` allows, or when more steps were "
        "committed meanwhile than in half of its first 20 cycles. The paper allows 4 failed epochs to fast hospitals, "
        "and 1 to slow ones, whose loss must fall by more than 1 %: name those with `local.cycle.slowSilos`. Set "
        "`protocol.mode: Asynchronous`."
    ),
)

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
)

ASYNC_FEDAVG = replace(
    FEDAVG,
    slots=slots("AsyncFedAvg", weighting=_BY_IMAGES, local=METIS_LOCAL),
    summary="FedAvg without rounds: every arriving update replaces the silo's previous one in the average.",
    protocols=("Asynchronous",),
    reveals_to_server="the number of training images; each update by itself, without a round's others to hide among",
    source=_CACHE,
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
)

ASYNC_DVW_ADAPTIVE = replace(
    ASYNC_DVW,
    slots=DVW.slots.model_copy(
        update={
            "name": "AsyncDVWAdaptive",
            "local": DVW.slots.local.model_copy(update={"cycle": ValidationCycle()}),
        }
    ),
    summary="AsyncDVW in which a silo trains until its validation loss stops falling or the other silos have moved on.",
    reveals_to_server=f"{ASYNC_DVW.reveals_to_server}; how many steps a silo trains, so how fast it is and learns",
    reveals_to_silos=f"{DVW.reveals_to_silos}; how many steps are committed in all",
    source="Stripelis et al. (Metis), section V (adaptive update frequency); methods reference, 6.14",
)

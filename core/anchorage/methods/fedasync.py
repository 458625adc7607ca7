"""FedAsync: every arriving update is mixed into the model, the less the older it is (METHODS.md 6.14)."""

from dataclasses import replace

from anchorage.api.method import Regulariser, ResolvedMethod, ServerStep, Weighting
from anchorage.methods.dvw import METIS_LOCAL
from anchorage.methods.preset import Preset, slots


def _slots(name: str, step: ServerStep) -> ResolvedMethod:
    return slots(
        name,
        regulariser=Regulariser(type="Proximal", mu="0.005"),
        weighting=Weighting(type="Uniform"),
        server_step=step,
        local=METIS_LOCAL,
    )


FEDASYNC = Preset(
    slots=_slots("FedAsync", ServerStep(type="Mix", alpha="0.6", staleness="Constant")),
    summary="Every arriving update is mixed into the server's model with the same weight.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Asynchronous",),
    down=(),
    up=(),
    reveals_to_server="each update by itself, without a round's others to hide among",
    reveals_to_silos="nothing beyond the community model",
    source="Xie et al. 2019, Algorithm 1 with s(t - tau) = 1; METHODS.md 6.14",
    results="",
    advice=(
        "The asynchronous method that needs least of the server: one model, whatever the number of hospitals. What a "
        "hospital does counts by how often it commits, not by how many images it has, so fast hospitals dominate. "
        "`serverStep.alpha` is the weight of an update. Set `protocol.mode: Asynchronous`."
    ),
)

FEDASYNC_POLYNOMIAL = replace(
    FEDASYNC,
    slots=_slots("FedAsyncPolynomial", ServerStep(type="Mix", alpha="0.6", staleness="Polynomial", falloff="0.5")),
    summary="FedAsync whose weights fall with a power of the update's age.",
    source="Xie et al. 2019, Algorithm 1 with s = (t - tau + 1)^-a, a fresh update having t = tau; METHODS.md 6.14",
    results="",
    advice=(
        "FedAsync for hospitals of different speed: an update counts the less, the more models the server made since "
        "the hospital's download. Metis' comparison uses it. Set `protocol.mode: Asynchronous`."
    ),
)

FEDASYNC_HINGE = replace(
    FEDASYNC,
    slots=_slots("FedAsyncHinge", ServerStep(type="Mix", alpha="0.6", staleness="Hinge", falloff="10", grace=4)),
    summary="FedAsync whose weights fall sharply once an update is older than a few models.",
    source="Xie et al. 2019, Algorithm 1 with s = 1 up to b, then 1 / (a (t - tau - b) + 1); METHODS.md 6.14",
    advice=(
        "FedAsync that takes every update for fresh that is at most `serverStep.grace` models old, and lets older ones "
        "hardly count. With many hospitals most updates are older: raise the grace to about their number. Set "
        "`protocol.mode: Asynchronous`."
    ),
)

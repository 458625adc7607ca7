"""FedAsync: every arriving update is mixed into the model, the less the older it is (methods reference, 6.14)."""

from dataclasses import replace

from anchorage.api.method import ResolvedMethod
from anchorage.methods.dvw import METIS_LOCAL
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.server_step.mix import Mix, MixHinge, MixPolynomial
from anchorage.pieces.slots import ServerStep
from anchorage.pieces.weighting.uniform import Uniform


def _slots(name: str, step: ServerStep) -> ResolvedMethod:
    return slots(name, regulariser=Proximal(mu="0.005"), weighting=Uniform(), server_step=step, local=METIS_LOCAL)


FEDASYNC = Preset(
    slots=_slots("FedAsync", Mix(alpha="0.6")),
    summary="Every arriving update is mixed into the server's model with the same weight.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Asynchronous",),
    reveals_to_server="each update by itself, without a round's others to hide among",
    reveals_to_silos="nothing beyond the global model",
    source="Xie et al. 2019, Algorithm 1 with s(t - tau) = 1; methods reference, 6.14",
)

FEDASYNC_POLYNOMIAL = replace(
    FEDASYNC,
    slots=_slots("FedAsyncPolynomial", MixPolynomial(alpha="0.6", exponent="0.5")),
    summary="FedAsync with weights that fall with a power of an update's staleness.",
    source="Xie et al. 2019, Algorithm 1 with s = (t - tau + 1)^-a, a fresh update having t = tau; methods reference, 6.14",
)

FEDASYNC_HINGE = replace(
    FEDASYNC,
    slots=_slots("FedAsyncHinge", MixHinge(alpha="0.6", slope="10", grace=4)),
    summary="FedAsync with weights that fall sharply once an update's staleness exceeds a few models.",
    source="Xie et al. 2019, Algorithm 1 with s = 1 up to b, then 1 / (a (t - tau - b) + 1); methods reference, 6.14",
)

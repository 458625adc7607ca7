"""What a federation can be held against: training of the same network without it."""

from typing import Literal

from anchorage.api.fact import Fact
from anchorage.api.federation import FederationSpec
from anchorage.methods.resolution import resolve

Alone = Literal["Anchors", "Sites", "Nothing"]

_NO_TRAINED_CLASSIFIER = {Fact.UNTRAINED, Fact.CLASSIFIER_UNTRAINED}
"""Facts of methods that train no classifier on the silos' labels."""


def measured_alone(spec: FederationSpec) -> Alone:
    """Return where the labels are that the network is trained on alone, to be scored on the server's images.

    Anchors: at the server, where that trains. Sites: at the silos. Nothing: the server scores nothing, or the method trains no classifier.
    """
    facts = resolve(spec.method, spec.task).facts()
    if not spec.server_data.keys() & {"validation", "test"}:
        return "Nothing"
    if Fact.SERVER_TRAINING in facts:
        return "Anchors" if spec.anchor_data is not None else "Nothing"
    return "Nothing" if facts & _NO_TRAINED_CLASSIFIER else "Sites"

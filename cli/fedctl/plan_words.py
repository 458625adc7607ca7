"""What leaves each hospital, in words, from what the method's pieces declare."""

from collections.abc import Iterator

from anchorage.api.fact import Fact
from anchorage.api.federation import Silo
from anchorage.api.files import Study
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import expect
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.methods import PRESETS
from anchorage.methods.checks import WITHOUT_LABELS
from anchorage.methods.composition import parts_of
from anchorage.methods.preset import auxiliary_arrays
from fedctl.output import amount


def leaving(study: Study, update_bytes: int) -> dict[str, list[str]]:
    """Return sentences for every silo by name.

    Parameters
    ----------
    study : Study
        The documents.
    update_bytes : int
        Bytes of an update of the main method.
    """
    return {silo.metadata.name: list(_sentences(study, silo, update_bytes)) for silo in study.silos}


def _sentences(study: Study, silo: Silo, update_bytes: int) -> Iterator[str]:
    spec = study.federation.spec
    methods = {part.method.name: part.method for part in parts_of(spec)}
    takes_unlabelled = any(method.facts() & WITHOUT_LABELS for method in methods.values())
    yield "how many images it has, and a keyed digest by which the server sees whether they change"
    if silo.spec.labels == "None" and not takes_unlabelled:
        yield f"nothing else: it has no labels, and {spec.method.name} learns from labels alone"
        return
    if any(Fact.UNTRAINED not in method.facts() for method in methods.values()):
        yield f"the weights of its model after each training, {amount(update_bytes)}"
    yield "counts of the images it trained on and figures of the training, such as its loss"
    for name, method in methods.items():
        during = f" (during {name})" if len(methods) > 1 else ""
        for array in auxiliary_arrays(method, up=True):
            yield f"{array.name} {array.shape}: {array.meaning}{during}"
        if expect(method.weighting, WeightingEngineHooks).weigher(spec.task).evaluated:
            yield f"how its own validation images are classified by every silo's update, as counts{during}"
    if spec.evaluation and spec.evaluation.silo_percent and silo.spec.labels != "None":
        for summed in spec.task.tally_arrays():
            yield f"{summed.name}: {summed.meaning}, of the images that it keeps from training (siloPercent)"
    if silo.spec.managed and silo.spec.managed.policy:
        yield f"of all this, only what its policy allows ({silo.spec.managed.policy})"


def describe_disclosure(method: ResolvedMethod) -> dict[str, str]:
    """Return what the server and what other silos can learn through a method, as its preset says."""
    preset = PRESETS[method.name]
    return {"server": preset.reveals_to_server, "silos": preset.reveals_to_silos}

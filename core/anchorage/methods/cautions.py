"""What a valid federation will do that its author may not mean: silos that never train, and labels that nothing reads."""

from collections.abc import Iterator, Sequence

from anchorage.api.fact import Fact
from anchorage.api.federation import Federation, Silo
from anchorage.api.method import MethodSpec
from anchorage.api.stages import stage_method
from anchorage.api.task import Task
from anchorage.api.text import list_some
from anchorage.methods.checks import WITHOUT_LABELS
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve

_WITHOUT_OWN_LABELS = {Fact.LABELS_REPLACED, Fact.CLASSIFIER_UNTRAINED, Fact.PRINCIPAL_COMPONENTS}
"""Facts of pieces by which a stage learns of no silo's own labels."""


def cautions(federation: Federation, silos: Sequence[Silo]) -> Iterator[str]:
    """Yield a line for each of these, which names the silos and says what to do; the documents are valid."""
    name = federation.spec.method.name
    if idle := idle_silos(federation, silos):
        yield (
            f"{list_some(idle)}: labels: None, and {name} learns from labelled images alone, so that nothing is trained there; "
            "choose a method that uses images without labels (fedctl methods list), or leave out what has none"
        )
    if unread := unread_labels(federation, silos):
        yield (
            f"{list_some(unread)}: {name} guesses the labels of all images at silos and reads none of theirs; choose a method for "
            "labels at silos (docs/choosing-a-method.md), or set labels: None"
        )


def idle_silos(federation: Federation, silos: Sequence[Silo]) -> tuple[str, ...]:
    """Return the names of silos that never train: those without labels, where no stage's method learns from images alone.

    A method that declares `Preset.labels` None without such a piece means them to look on, as LowerBound does.
    """
    spec = federation.spec
    methods = (spec.method, *map(stage_method, spec.warm_up))
    if any(_takes_unlabelled(method, spec.task) for method in methods):
        return ()
    guessing = any(Fact.STATED_MOMENTS in resolve(method, spec.task).facts() for method in methods)
    return tuple(
        silo.metadata.name
        for silo in silos
        if silo.spec.labels == "None" and not (guessing and _may_state_counts(silo))
    )


def unread_labels(federation: Federation, silos: Sequence[Silo]) -> tuple[str, ...]:
    """Return the names of silos with labels that no stage learns of, since silos guess all labels in those that train the classifier."""
    spec = federation.spec
    facts = [resolve(method, spec.task).facts() for method in (spec.method, *map(stage_method, spec.warm_up))]
    if spec.task.gives_maps or not all(each & _WITHOUT_OWN_LABELS for each in facts):  # labelled maps are learnt
        return ()
    if not any(Fact.LABELS_REPLACED in each for each in facts):
        return ()
    return tuple(silo.metadata.name for silo in silos if silo.spec.labels != "None")


def _may_state_counts(silo: Silo) -> bool:
    """Return whether a silo states its class counts, or may: its data may be described at its own site alone."""
    return silo.spec.managed is None or bool(silo.spec.managed.data.stated_counts)


def _takes_unlabelled(method: MethodSpec, task: Task) -> bool:
    preset = PRESETS[method.name]
    means_to = "None" in preset.labels and not preset.slots.facts() & WITHOUT_LABELS
    return means_to or bool(resolve(method, task).facts() & WITHOUT_LABELS)

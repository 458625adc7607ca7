"""A stage's method, a preset and over it what the stage sets; and the model as a stage sees it."""

from dataclasses import replace

from anchorage.api.checking import check_document
from anchorage.api.errors.documents import OVERRIDE_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.federation import WarmUp
from anchorage.api.method import MethodSpec, ResolvedMethod
from anchorage.api.mistakes import DocumentError, Mistake, format_path
from anchorage.api.model import ModelDescription
from anchorage.api.overrides import apply_override, path_of
from anchorage.api.source import RawDocument


def stage_method(stage: WarmUp) -> MethodSpec:
    """Return a stage's method as `spec.method` would say it.

    Raises
    ------
    DocumentError
        With every mistake in what the stage sets, at its place inside the stage.
    """
    raw, mistakes = RawDocument({"name": stage.method}, {(): 0}), []
    for index, override in enumerate(stage.set):
        mistake = apply_override(raw, MethodSpec, override, "local.epochs=1")
        if mistake is None and path_of(override)[0] == "name":
            mistake = Mistake(OVERRIDE_REFUSED, (), "found another preset's name; write it as the stage's method")
        if mistake is not None:
            mistakes.append(replace(mistake, path=("set", index), where=""))
    if mistakes:
        raise DocumentError(mistakes)
    method, method_mistakes = check_document(raw, MethodSpec)
    if method is None or method_mistakes:
        raise DocumentError([inside_stage(stage, mistake) for mistake in method_mistakes])
    return method


def inside_stage(stage: WarmUp, mistake: Mistake) -> Mistake:
    """Give a mistake in a stage's method its place inside the stage: the last override that touches its field, else the preset's name."""
    for index in reversed(range(len(stage.set))):
        if all(
            overridden_part == field
            for overridden_part, field in zip(path_of(stage.set[index]), mistake.path, strict=False)
        ):
            return replace(mistake, path=("set", index), message=f"{format_path(mistake.path)}: {mistake.message}")
    return replace(mistake, path=("method",))


def stage_model(model: ModelDescription, method: ResolvedMethod) -> ModelDescription:
    """Return the model as a stage of several has it: where no silo trains the encoder is frozen, so it travels once and sees images once."""
    untrained = Fact.UNTRAINED in method.facts()
    return model.model_copy(update={"trainable": "Head"}) if untrained and model.lora is None else model

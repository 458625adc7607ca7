"""The one check of a method in its federation: what its pieces need, what they say of their own options, and what a preset asks for."""

from collections.abc import Iterator, Sequence

from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE, PROTOCOL_REFUSED, UNKNOWN_METHOD
from anchorage.api.fact import Fact
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import Mistake
from anchorage.api.model import NetworkKind, network_called
from anchorage.api.piece import PIECES, expect
from anchorage.api.plan import Plan
from anchorage.engine.hooks import EncodingHooks, EngineHooks, ServerStepHooks, WeightingEngineHooks
from anchorage.engine.strategy import memory_of, sends_own_models
from anchorage.methods.preset import of_vectors
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve, unknown_method
from anchorage.methods.stages import stages_fit
from anchorage.methods.volume_checks import of_volumes
from anchorage.transport.secure_aggregation.member import FEWEST

_NAME = ("spec", "method", "name")
_MODE = ("spec", "protocol", "mode")
WITHOUT_LABELS = {Fact.PSEUDO_LABELS, Fact.SELF_SUPERVISION, Fact.UNLABELLED_MOMENTS}
"""Facts of pieces by which images without labels of a silo count."""
_DECIDE_MODE = ("weighting", "server_training", "server_step")
"""Slots for whose sake a preset refuses a mode."""


def check(federation: Federation, silos: Sequence[Silo]) -> list[Mistake]:
    """Find what has no meaning in a federation's choice of method; not yet located.

    Raises
    ------
    AnchorageError
        Another package's preset or piece is broken.
    """
    name = federation.spec.method.name
    if name not in PRESETS:
        return [Mistake(UNKNOWN_METHOD, _NAME, unknown_method(name))]
    spec = federation.spec
    plan = Plan(spec, silos, resolve(spec.method, spec.task))
    return [*mistakes_of(plan), *stages_fit(plan, mistakes_of)]


def mistakes_of(plan: Plan) -> Iterator[Mistake]:
    """Yield the mistakes of one method, each once."""
    mistakes: dict[tuple[object, ...], Mistake] = {}
    for mistake in (
        *_unmet(plan),
        *_of_maps(plan),
        *of_volumes(plan),
        *_find_contradictions(plan),
        *_of_labels(plan),
        *_of_protocol(plan),
        *_of_steps(plan),
        *_of_hidden(plan),
        *_of_components(plan),
        *_of_average(plan),
        *_of_scoring(plan),
        *_of_secure(plan),
        *_of_private(plan),
        *_of_model_encoding(plan),
    ):
        mistakes.setdefault((mistake.failure.code, mistake.path), mistake)
    yield from mistakes.values()
    if not any(mistake.path == _MODE for mistake in mistakes.values()):
        yield from _of_preset(plan)


def _of_maps(plan: Plan) -> Iterator[Mistake]:
    """A task with outputs for each pixel needs a network that gives maps, views that masks can follow, and no head on vectors."""
    model, task = plan.spec.model, plan.spec.task
    network = network_called(model.network)
    if network.gives_maps != task.gives_maps:
        fitting = ", ".join(_networks(maps=task.gives_maps))
        one = "a map for each image" if task.gives_maps else "one vector for each image"
        message = f"found {model.network}, but the task {task.name} needs a network that gives {one}; choose such as {fitting}"
        yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "model", "network"), message)
    if not task.gives_maps:
        return
    if not getattr(PIECES["augmentation", model.augmentation], "moves_masks", False):
        fitting = ", ".join(
            name for name, kind in PIECES.list_loaded("augmentation").items() if getattr(kind, "moves_masks", False)
        )
        message = f"found {model.augmentation}, whose views masks cannot follow; choose one of {fitting}"
        yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "model", "augmentation"), message)
    vectors = {"hidden": model.hidden, "lora": model.lora, "principalComponents": model.principal_components}
    for field, value in vectors.items():
        if value is not None:
            message = f"found {field}, which serves networks that give one vector for each image; remove it"
            yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "model", field), message)
    for piece in plan.method.pieces():
        if of_vectors(piece):
            message = (
                f"found {piece.name}, which serves one vector for each image, but {task.name} has maps; choose another"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, piece.path, message)


def _networks(*, maps: bool) -> Iterator[str]:
    """Yield names of networks that give maps, or vectors: all of the former, some of the latter."""
    for name, kind in PIECES.list_loaded("network").items():
        if not name.endswith("/") and network_called(name).gives_maps == maps:
            yield name
        elif maps and issubclass(kind, NetworkKind):
            yield from (name + member for member in kind.members if network_called(name + member).gives_maps)


def _of_average(plan: Plan) -> Iterator[Mistake]:
    """Yield why there is no average of global models to score."""
    if plan.spec.evaluation is None or plan.spec.evaluation.average_decay is None:
        return
    step = expect(plan.method.server_step, ServerStepHooks).step()
    why = "with silos whose own models are scored" if step is not None and step.scores_each_update else ""
    if plan.asynchronous:
        why = "without rounds (protocol.mode: Asynchronous)"
    if why:
        message = f"found averageDecay {why}; leave it out"
        yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "evaluation", "averageDecay"), message)


def _of_scoring(plan: Plan) -> Iterator[Mistake]:
    """Yield why silos cannot score models on images of theirs."""
    if plan.spec.evaluation is None or not plan.spec.evaluation.silo_percent:
        return
    why = "without rounds (protocol.mode: Asynchronous)" if plan.asynchronous else ""
    if Fact.CLASSIFIER_UNTRAINED in plan.facts:
        why = f"with {plan.method.name}, which trains no classifier at silos"
    if why:
        path = ("spec", "evaluation", "siloPercent")
        yield Mistake(MEANINGLESS_OVERRIDE, path, f"found siloPercent {why}; leave it out")


def _unmet(plan: Plan) -> Iterator[Mistake]:
    """Yield the needs of the pieces that are not met, a task that they can serve first."""
    task = plan.spec.task.name
    for piece in plan.method.pieces():
        if piece.tasks is not None and task not in piece.tasks:
            fitting = [
                name
                for name, kind in PIECES.list_loaded(piece.slot).items()
                if kind.tasks is None or task in kind.tasks
            ]
            served = " and ".join(sorted(piece.tasks))
            message = (
                f"found {piece.name}, which serves {served}, but the task is {task}; choose one of {', '.join(fitting)}"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, piece.path, message)
        for need in piece.needs():
            if (need.fact in plan.facts) == need.refused:
                yield Mistake(need.failure, need.path or piece.path, need.message)


def _find_contradictions(plan: Plan) -> Iterator[Mistake]:
    """Yield what pieces find wrong with their own options, and a local loss that nothing reads."""
    for piece in plan.method.pieces():
        yield from piece.check(plan)
    local_loss = plan.spec.method.local_loss
    if local_loss is not None and Fact.LABELS_UNREAD in plan.facts:
        message = f"found {local_loss.name}, but no silo trains on labels of its own by a loss of its choice; remove it"
        yield Mistake(MEANINGLESS_OVERRIDE, local_loss.path, message)


def _of_labels(plan: Plan) -> Iterator[Mistake]:
    """Learning needs labels at a silo or at the server."""
    name = plan.method.name
    if PRESETS[name].every_label:
        partly = [silo for silo in plan.silos if silo.spec.labels != "All"]
        for silo in partly[:1]:
            message = (
                f"found {name}, but {silo.metadata.name} has labels: {silo.spec.labels}; label it, or choose LowerBound"
            )
            yield Mistake(LABELS_MISSING, _NAME, message)
    if (
        Fact.LABELLED_SILOS in plan.facts
        or not plan.silos
        or plan.facts & {Fact.LABELS_FROM_ANCHORS, Fact.LABELS_UNNEEDED}
    ):
        return
    if Fact.PSEUDO_LABELS not in plan.facts:
        message = (
            f"found {name}, whose silos learn from their own labels, but every silo has labels: None; "
            "label a silo, or choose a method with pseudo-labels"
        )
        yield Mistake(LABELS_MISSING, _NAME, message)
    elif Fact.SERVER_TRAINING not in plan.facts:
        message = (
            f"found {name} with labels of its own making, but every silo has labels: None and the server "
            "trains on none; label a silo, or set serverTraining: {anchors: {}} with anchorData"
        )
        yield Mistake(LABELS_MISSING, _NAME, message)


def _of_protocol(plan: Plan) -> Iterator[Mistake]:
    """A validation cycle needs labelled images and no rounds; without rounds updates are summed up, and silos are not sampled."""
    cycle = ("spec", "method", "local", "cycle")
    if Fact.VALIDATION_CYCLE in plan.facts:
        if not plan.asynchronous:
            message = "found Synchronous, but with local.cycle every silo trains as long as it likes; set Asynchronous, or another method"
            yield Mistake(PROTOCOL_REFUSED, _MODE, message)
        for fact, slot in ((Fact.PSEUDO_LABELS, "pseudoLabels"), (Fact.SELF_SUPERVISION, "selfSupervised")):
            if fact in plan.facts:
                message = f"found a validation cycle with {slot}, but it counts passes over labelled images; remove one of them"
                yield Mistake(MEANINGLESS_OVERRIDE, cycle, message)
    if plan.asynchronous and Fact.SUM_OF_UPDATES not in plan.facts:
        message = f"found Asynchronous, but the aggregation {plan.method.aggregation.name} needs a round's updates together; set Synchronous"
        yield Mistake(PROTOCOL_REFUSED, _MODE, message)
    if plan.asynchronous and plan.spec.protocol.silos_per_round is not None:
        path = ("spec", "protocol", "silosPerRound")
        message = "found a number, but an asynchronous protocol samples no silos: all train all the time; remove it"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def _of_steps(plan: Plan) -> Iterator[Mistake]:
    """Steps in place of passes need losses batch by batch, and nothing that counts passes."""
    local = plan.method.local
    if local.steps is None:
        return
    schedule = getattr(local.optimiser, "schedule", None)
    uses_pseudo_labels = Fact.PSEUDO_LABELS in plan.facts and (
        Fact.PSEUDO_LABELS_BY_STEP not in plan.facts or Fact.BALANCED_HEAD in plan.facts
    )
    step_features = {
        "pseudoLabels other than uda, fixMatch, sage or committee, which are of whole passes": uses_pseudo_labels,
        "unlabelled.epochs, which is for whole passes": local.unlabelled.epochs is not None,
        "selfSupervised, whose silos go over all images": Fact.SELF_SUPERVISION in plan.facts,
        "a validation cycle, which takes passes until they do not help": Fact.VALIDATION_CYCLE in plan.facts,
        "the schedule WarmUpCosine, which counts passes": schedule == "WarmUpCosine",
    }
    for other in (what for what, holds in step_features.items() if holds):
        path = ("spec", "method", "local", "steps")
        yield Mistake(MEANINGLESS_OVERRIDE, path, f"found steps with {other}; remove one of them")


def _of_hidden(plan: Plan) -> Iterator[Mistake]:
    """A hidden layer stands where a projection head would, and has to be trained."""
    if plan.spec.model.hidden is None:
        return
    network = plan.spec.model.network
    projects = any(getattr(piece, "projection_head", False) for piece in plan.method.pieces())
    hidden_features = {
        f"{network}, which has a projection head in its place": getattr(network_called(network), "projects", False),
        f"{plan.method.name}, which has a projection head in its place": projects,
        f"{plan.method.name}, which makes a classifier without training": Fact.UNTRAINED in plan.facts,
    }
    for other in (what for what, holds in hidden_features.items() if holds):
        yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "model", "hidden"), f"found hidden with {other}; leave it out")


def _of_components(plan: Plan) -> Iterator[Mistake]:
    """Principal components are of features that stay as they are, stand where other layers would, and are found before anything is made of them."""
    model, path = plan.spec.model, ("spec", "model", "principalComponents")
    if model.principal_components is None:
        return
    projects = any(getattr(piece, "projection_head", False) for piece in plan.method.pieces())
    component_features = {
        "lora, which changes the features; remove one of them": model.lora is not None,
        "hidden, which stands in their place; remove one of them": model.hidden is not None,
        f"{model.network}, which has a projection head in their place; remove it": getattr(
            network_called(model.network), "projects", False
        ),
        f"{plan.method.name}, which has a projection head in their place; remove it": projects,
    }
    for other in (what for what, holds in component_features.items() if holds):
        yield Mistake(MEANINGLESS_OVERRIDE, path, f"found principalComponents with {other}")
    first = PRESETS.get(plan.spec.warm_up[0].method) if plan.spec.warm_up else None
    finds = first is not None and Fact.PRINCIPAL_COMPONENTS in first.slots.facts()
    if not finds and model.initial is None:
        message = "found principalComponents, which nothing finds; set spec.warmUp: [{method: PrincipalComponents, rounds: 1}]"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def _of_secure(plan: Plan) -> Iterator[Mistake]:
    """Secure aggregation needs at least three silos, rounds that may be revealed, and a method that makes nothing of single updates."""
    secure, protocol = plan.spec.protocol.secure_aggregation, plan.spec.protocol
    if secure is None:
        return
    path, why = ("spec", "protocol", "secureAggregation"), list(_of_single_updates(plan))
    if plan.asynchronous:
        why.insert(0, "an asynchronous protocol, which adds each update as it arrives")
    least, asked = secure.minimum_survivors, min(protocol.silos_per_round or 10**4, len(plan.silos) or 10**4)
    counted = min(protocol.min_silos, asked)
    fewest = counted if least > 2 else asked
    if fewest < FEWEST:
        why.append(
            f"rounds of {fewest} silos (minSilos, silosPerRound), where {FEWEST} are needed to hide one among others"
        )
    if counted < least:
        why.append(
            f"rounds of {counted} silos (minSilos, silosPerRound), whose sum {least} make known (minimumSurvivors)"
        )
    for obstacle in why[:1]:
        message = f"found it with {obstacle}; remove secureAggregation, or choose otherwise"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def _of_private(plan: Plan) -> Iterator[Mistake]:
    """Nothing of single silos may reach the model, or other silos, past the noise."""
    if Fact.PRIVATE_MODEL not in plan.facts:
        return
    slot, why = plan.method.aggregation, list(_beside_the_sum(plan))
    if plan.spec.evaluation is not None and plan.spec.evaluation.silo_percent:
        why.append("evaluation.siloPercent, whose counts have none")
    for obstacle in why[:1]:
        yield Mistake(MEANINGLESS_OVERRIDE, slot.path, f"found noise at the server with {obstacle}; choose otherwise")


def _of_model_encoding(plan: Plan) -> Iterator[Mistake]:
    """A rounded model needs rounds, silos that all receive it, and updates that are changes of it."""
    if plan.spec.protocol.model_encoding is None:
        return
    path, why = ("spec", "protocol", "modelEncoding"), list(_beside_one_model(plan))
    if plan.asynchronous:
        why.insert(0, "an asynchronous protocol, whose server does not keep the models that silos started from")
    for obstacle in why[:1]:
        yield Mistake(
            MEANINGLESS_OVERRIDE, path, f"found it with {obstacle}; remove modelEncoding, or choose otherwise"
        )


def _beside_one_model(plan: Plan) -> Iterator[str]:
    """Yield what of a method sends silos more than one model of all, or makes weights of something else than its changes."""
    for piece in plan.method.pieces():
        piece_name = f"{piece.slot} {piece.name}"
        if large := [array.name for array in piece.auxiliary() if array.large and not array.up]:
            yield f"{piece_name}, which sends silos {large[0]} behind the model, and such models travel as they are"
        if sends_own_models(piece, plan.spec.task, plan.spec.seed):
            yield f"{piece_name}, which sends silos models of their own, and such models travel as they are"
    if plan.facts & {Fact.UNTRAINED, Fact.CLASSIFIER_OF_CLASS_MEANS}:
        yield f"{plan.method.name}, whose server makes a classifier of what the rounded model tells of images"


def _of_single_updates(plan: Plan) -> Iterator[str]:
    """Yield what of a method needs single updates; what nobody knows to need the sum alone is taken to need more."""
    yield from _beside_the_sum(plan)
    for piece in plan.method.pieces():
        piece_name = f"{piece.slot} {piece.name}"
        if isinstance(piece, WeightingEngineHooks) and piece.weigher(plan.spec.task).most(1) is None:
            yield f"{piece_name}, whose weights are no numbers of a silo's own images"
        if isinstance(piece, EncodingHooks) and piece.coding() is not None:
            yield f"{piece_name}, which rounds single updates"
    if Fact.SUM_OF_UPDATES not in plan.facts:
        yield f"the aggregation {plan.method.aggregation.name}, which needs single updates"


def _beside_the_sum(plan: Plan) -> Iterator[str]:
    """Yield what of a method takes more of single silos than a part in the sum of updates."""
    for piece in plan.method.pieces():
        piece_name = f"{piece.slot} {piece.name}"
        if sent := [array.name for array in piece.auxiliary() if array.up]:
            yield f"{piece_name}, whose silos send {sent[0]} beside their updates"
        if isinstance(piece, EngineHooks):
            refines = type(piece).refine is not EngineHooks.refine
            if refines or memory_of(piece, plan.spec.task, plan.spec.seed) is not None:
                yield f"{piece_name}, which looks at single updates"
        if isinstance(piece, ServerStepHooks) and (step := piece.step()) and step.scores_each_update:
            yield f"{piece_name}, which scores every silo's model"
    if plan.facts & {Fact.CONTROL_VARIATES, Fact.UNTRAINED}:
        yield f"{plan.method.name}, whose silos send more than a change of the model"


def _of_preset(plan: Plan) -> Iterator[Mistake]:
    """A preset may refuse a mode that its pieces could follow, unless what decides is set otherwise."""
    allowed = PRESETS[plan.method.name].protocols
    decided = any(getattr(plan.spec.method, slot) is not None for slot in _DECIDE_MODE)
    if plan.spec.protocol.mode not in allowed and not decided:
        message = f"found {plan.spec.protocol.mode}, but {plan.method.name} allows {', '.join(allowed)}"
        yield Mistake(PROTOCOL_REFUSED, _MODE, message)

"""A server's and a silo's learner on small synthetic images, and the methods that they are tried with."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes
from numpy.typing import NDArray
from pydantic.alias_generators import to_snake
from torch import Tensor

from anchorage.api.method import MethodSpec, ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.piece import PIECES
from anchorage.api.run import RunDescription
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.store.large_files import HeldLarge
from anchorage.engine.strategy import Strategy, task_layout
from anchorage.learning import silo_learner
from anchorage.learning.data import ImageSet
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.learners import Checkpointing, build_server_learner, build_silo_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.learning.server_learner import TorchServerLearner
from anchorage.methods import resolve
from anchorage.methods.variants import variants
from anchorage.pieces.self_supervised.cluster_assignment import GlobalCentroids
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Announcement, AuxiliaryData, Task, TaskKind
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.large_arrays import LargeArrays, joined_behind
from anchorage.transport.tensors.model import ModelBytes, read_arrays

CLASSES = 3
MODEL = ModelDescription(
    network="SmallCnn",
    task=Classification(classes=tuple(map(str, range(CLASSES)))),
    image_size=8,
    channels=1,
    augmentation="Digits",
)


def images_of(count: int, seed: int = 0, labelled: bool = True) -> ImageSet:
    """Images whose bright corner tells the class, with noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = rng.integers(0, 60, (count, 1, 8, 8), dtype=np.uint8)
    for row, label in enumerate(labels):
        y, x = divmod(int(label), 2)
        pixels[row, 0, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4] += 150
    names = tuple(map(str, range(count)))
    classes = tuple(map(str, range(CLASSES)))
    labels_given = labels.astype(np.int64) if labelled else np.full(count, -1, np.int64)
    return ImageSet(pixels, labels_given, names, names, labels_given, classes, np.arange(len(names), dtype=np.uint64))


def method_of(name: str, **slots: Mapping[str, Any]) -> ResolvedMethod:
    """A preset or variant with slots as a document sets them; options without an alternative are those of its own."""
    written = dict(variants()[name].method) if name in variants() else {"name": name}
    base = resolve(MethodSpec.model_validate(written))
    written["local"] = {"epochs": 1, "batchSize": 8, **slots.pop("local", {})}
    for slot, options in slots.items():
        for alternative, chosen in _member(base, slot, options).items():
            written[slot] = {alternative: {**written.get(slot, {}).get(alternative, {}), **chosen}}
    return resolve(MethodSpec.model_validate(written))


def _member(base: ResolvedMethod, slot: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    if options.keys() <= PIECES.list_loaded(to_snake(slot)).keys():
        return options
    return {getattr(base, to_snake(slot)).name: options}


def network_of(name: str) -> Network:
    """A preset's network with weights that are drawn."""
    return build_model(MODEL, TrainingMethod.of(method_of(name)), 1)


def memory_of(method: ResolvedMethod, seed: int = 1) -> RoundMemory:
    """What the server remembers for the one piece of a method that has it remember anything."""
    strategy = Strategy.of(method, of_classes(CLASSES), seed)
    strategy.keep_in(HeldLarge())
    (memory,) = strategy.memories.values()
    return memory


@dataclass
class Party:
    """One silo's learner and what its last task gave."""

    method: ResolvedMethod
    images: ImageSet
    state: Path
    labels: str = "None"
    seed: int = 1
    silo: str = "north"
    initial: ModelBytes | None = None
    described: ModelDescription = MODEL
    checkpointing: Checkpointing | None = None
    devices: DeviceGroup | None = None
    update: NDArray[np.uint8] | None = field(default=None, init=False)
    behind: LargeArrays | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.server = self.made_server()
        self.model = self.server.initialise() if self.initial is None else self.initial
        self.run = RunDescription(
            federation="f",
            seed=self.seed,
            model=self.described,
            method=self.method,
            down=task_layout(self.server.down, self.method).to_json(),
            up=self.server.up.to_json(),
            rounds=5,
            mode="Synchronous",
        )
        self.restart()

    def made_server(self) -> TorchServerLearner:
        anchors, validation = images_of(12, seed=9), images_of(30, 8)
        return build_server_learner(
            model=self.described, method=self.method, seed=self.seed, anchors=anchors, validation=validation
        )

    def restart(self) -> None:
        """Make the learner anew, as a killed trainer is."""
        self.learner = build_silo_learner(
            run=self.run,
            silo=self.silo,
            labels=self.labels,
            images=self.images,
            state=self.state,
            device="cpu",
            checkpointing=self.checkpointing,
            devices=self.devices,
        )

    def task(self, round_number: int = 1, auxiliary_data: AuxiliaryData | None = None, repetitions: int = 1) -> Task:
        strategy = Strategy.of(self.method, of_classes(CLASSES), self.seed)
        _, remembered, _ = strategy.task_for(self.silo, round_number, self.model, self.server.up, {})
        if any(isinstance(memory, GlobalCentroids) for memory in strategy.memories.values()):
            remembered = {"centroids": np.eye(128, dtype=np.float32)}
        sent = (
            {**self.server.auxiliary_data(self.model, round_number), **remembered}
            if auxiliary_data is None
            else auxiliary_data
        )
        source, behind = joined_behind(self.model, [self.behind] if self.behind is not None else [])
        self.received = b"".join(source.chunk(index) for index in range(source.manifest.count))
        return Task(
            f"{round_number}", TaskKind.TRAIN, round_number, source.manifest, sent, behind, repetitions=repetitions
        )

    def train(
        self, round_number: int = 1, auxiliary_data: AuxiliaryData | None = None, repetitions: int = 1
    ) -> Announcement:
        self.steps: list[tuple[int, int]] = []
        self.update = None
        task = self.task(round_number, auxiliary_data, repetitions)
        return self.learner.train(
            task,
            np.frombuffer(self.received, np.uint8),
            self._out,
            lambda done, total: self.steps.append((done, total)) or 0,
        )

    def _out(self, nbytes: int) -> NDArray[np.uint8]:
        self.update = np.empty(nbytes, np.uint8)
        return self.update

    def watch_gradients(self) -> Mapping[str, float]:
        """Sums of the absolute gradients of encoder and heads from now on, by parameter; 0 where none came."""
        sums: dict[str, float] = {}

        def watch(name: str, parameter: Any) -> None:
            def add(gradient: Any) -> None:
                sums[name] += float(gradient.abs().sum())

            sums[name] = 0.0
            parameter.register_hook(add)

        for name, parameter in self.learner._network.named_parameters():
            if name.startswith(("encoder.", "classifier.", "plain_head.")):
                watch(name, parameter)
        return sums

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return read_arrays(self.server.up, self.update)

    def digest(self, round_number: int = 1) -> str:
        """The digest of the update's own bytes, without what is behind them."""
        announcement = self.train(round_number)
        assert announcement.trained and self.update is not None
        return Manifest.of(self.server.up.digest, self.update[: self.server.up.nbytes]).digest


SUPERVISED = [
    method_of(name)
    for name in (
        "FedAvg",
        "FedProx",
        "DVW",
        "DVWMCC",
        "AsyncDVWAdaptive",
        "FedAsyncPolynomial",
        "FedAvgM",
        "FedAdagrad",
        "FedAdam",
        "FedYogi",
        "CBAFedLowerBound",
        "MOON",
        "MOONL2",
        "SCAFFOLD",
        "SOLO",
        "LocalMix",
        "FedProxNaiveMix",
        "Supervised",
    )
]
CONSISTENT = [
    method_of(name, pseudoLabels={"threshold": "0"})
    for name in ("FedAvgFixMatch", "FedProxFixMatch", "FedAvgUDA", "FedProxUDA")
]
ADAPTIVE = [method_of("CBAFed", pseudoLabels={"threshold": "0.2"})]
SEMI = [method_of("FedAvgSemi"), method_of("SemiAnAgg"), *CONSISTENT, *ADAPTIVE]
SERVED = [method_of(name, pseudoLabels={"threshold": "0"}) for name in ("SemiFL", "FedAvgFixMatchAlternate")]
ANCHOR = [
    method_of(f"FedAnchor{variant}", pseudoLabels={"threshold": "0", **pseudo}, **slots)
    for variant, pseudo, slots in [
        ("", {}, {}),
        ("NoMixup", {}, {}),
        ("Mix", {}, {"mixup": {"redraw": "Epoch"}}),
        ("ServerMixup", {}, {}),
        ("Ensemble", {"views": 3}, {}),
        ("NoContrastive", {"anchors": "Raw"}, {}),
        ("", {}, {"weighting": {"semiAnAgg": {}}}),
        ("", {}, {"weighting": {"dvw": {"validationPercent": 20}}}),
    ]
]
DENSE = {"smallest": "0", "smallestChange": "0"}
MATCHED = [(method_of("FedMatch", pseudoLabels={"threshold": "0", **DENSE}), "Partial")]
MATCHED += [(method_of("FedMatchServer", pseudoLabels={"threshold": "0", **DENSE}), "None")]
VARIANTS = [
    (method_of(name, **slots), labels)
    for name, labels, slots in [
        ("FedRoD", "All", {}),
        ("FedRoDDual", "Partial", {}),
        ("FedRoDDual", "None", {}),
        ("SSILCDM", "None", {"pseudoLabels": {"threshold": "0"}}),
        ("SSILCDMFedAvgSemi", "Partial", {}),
        ("OrigACR", "All", {}),
        ("OrigACR", "Partial", {}),
        ("BalancedSoftmax", "All", {}),
        ("SemiAnAggCode", "None", {}),
        ("SemiAnAggSecondSeed", "None", {}),
        ("SemiFLNoMixup", "None", {"pseudoLabels": {"threshold": "0"}}),
        ("RSCFed", "None", {}),
        ("RSCFed", "Partial", {"pseudoLabels": {"divisor": "Actual"}}),
        ("FedCon", "None", {}),
        ("FedCoPLBudget", "None", {}),
        ("ImFedSemi", "None", {"pseudoLabels": {"lowest": "0"}}),
        ("FL2", "None", {"pseudoLabels": {"threshold": "0.4"}}),
        ("SAGE", "Partial", {"pseudoLabels": {"threshold": "0"}}),
        ("FedPerl", "Partial", {"pseudoLabels": {"threshold": "0"}}),
        ("ProtoFSSL", "Partial", {}),
        ("ProtoFSSL", "All", {}),
    ]
]
ALONE = [
    (method_of(name), labels)
    for name, labels in (
        ("FedBarlow", "None"),
        ("FedBarlow", "All"),
        ("Orchestra", "None"),
        ("FedSimSiam", "None"),
        ("FedBYOL", "None"),
        ("FedEMA", "None"),
        ("LDAWA", "None"),
    )
]
ALONE += [(method_of("FedCLR"), labels) for labels in ("All", "Partial")]
EVERY = (
    ALONE
    + MATCHED
    + VARIANTS
    + [(m, "All") for m in SUPERVISED + SEMI]
    + [(m, "None") for m in SEMI + SERVED + ANCHOR]
    + [(m, "Partial") for m in SEMI]
)


def given(labels: str) -> ImageSet:
    images = images_of(26)
    if labels == "Partial":
        known = np.where(np.arange(26) < 10, images.labels, -1)
        return replace(images, labels=known)
    return images


def watch_steps(monkeypatch: pytest.MonkeyPatch, watching: Callable[[], AbstractContextManager[object]]) -> None:
    """Have silos take the steps of a round, and nothing before or behind them, within a context."""
    take_steps = silo_learner.take_steps

    def watched(losses: Iterator[Tensor]) -> Iterator[Tensor]:
        with watching():
            yield from losses

    monkeypatch.setattr(
        silo_learner, "take_steps", lambda n, sgd, losses, **k: take_steps(n, sgd, watched(losses), **k)
    )

"""Images that a hostile server reads out of silos' updates: ``make bench-attack-inversion ARGS="--json FILE"``.

60 of scikit-learn's digits (8×8) are private. The server chooses network, weights, batch size, epochs and learning rate, as a description and a
task may; the silo trains with the project's own learner, behind the agent's gate, policy and privacy learner. It asks for `--rounds` updates of one
run, and uses those that the gate lets out; nobody at the hospital approves the run unless `--approved` says so. Six attacks, the first five of which
send the same weights in every round and average what comes back:

- planted: one silo with all 60 images. The dense layer of LeafCnn gets equal rows with biases that step over its input's brightness, so that
  neighbours differ by the images of one step (Fowl et al. 2022, "Robbing the Fed"); what is found there is the layer's input, which is turned back
  into an image.
- planted, mean: the same, but the 60 images are divided among three silos and the server sees the mean of their updates alone, as secure
  aggregation (Bonawitz et al. 2017) would show it.
- planted, aimed: the same with 8 neurons for the brightest images only, which wastes nothing of a clipped update on others.
- planted, one: all 2048 neurons alike, for the brightest image alone; their mean has a forty-fifth of the noise.
- planted, directions: the same row everywhere as in *one*, but in every `--each` rounds another one, which about half an image passes: the
  direction of a digit that nobody holds, with what all share taken out (`directions`).
- gradient: 15 silos of four images, or --group; honest random weights; images whose gradient points so are searched for (Geiping et al. 2020).

Read is an image where one of the server's candidates has a PSNR of 20 dB or more to it, moved by a pixel at most as training moves it, and less to
every other private image. Candidates that are digits which nobody holds show how often that happens by chance. An honest federation of three silos
with 200 digits each shows what a protection costs.
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction as Exact
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, max_pool2d, relu

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.learning.data import ImageSet
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.digits import list_digits
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.methods import resolve
from anchorage.transport.messages import Announcement, Assigned, Evaluation, Order, Permit, Task, TaskKind
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage.transport.tensors.codings import BlockCoding, Coding, TopCoding
from anchorage.transport.tensors.encoded import Encoding
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo.audit import AuditLog
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.protection import Protection
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import RunTerms

IMAGES, SIDE = 60, 8
CLASSES = tuple("0123456789")
READ_DB = 20.0
AIMED, GAIN = 8, 10
PER_SILO, TESTED = 200, 600
BARE = {"relativeNoise": "0"}
POLICIES: dict[str, dict[str, Any]] = {
    "default (no policy file)": {},
    "server trusted": BARE,
    "strict budget": {"allowedMethods": ["FedAvg"], "allowedAuxiliaryData": [], "maximumRounds": 1, **BARE},
    "images per update": {"minimumSamples": 32, **BARE},
    "clip": {"clipNorm": "1", **BARE},
    "relative noise 1": {"relativeNoise": "1"},
    "relative noise": {"relativeNoise": "1.25"},
    "clip and little noise": {"clipNorm": "1", "noiseStd": "0.001"},
    "clip and noise": {"clipNorm": "1", "noiseStd": "0.01"},
}
CODINGS: dict[str, Coding] = {
    "int8": BlockCoding(bits=8),
    "int4": BlockCoding(bits=4),
    "topK 0.01": TopCoding(share=Exact("0.01")),
}
"""Encodings of updates (`spec.method.encoding`), which no policy asks for; the server is trusted."""
Floats = NDArray[np.float32]


@dataclass
class Server:
    """The hostile server's end of a `ServerLink`."""

    model: ModelBytes
    update: bytes = b""
    refusal: str = ""
    announced: Announcement | None = None

    def welcome(self) -> str:
        """Return no description."""
        return "{}"

    def next_order(self, timeout: float | None) -> Order | None:
        """Return nothing: the worker is handed its orders."""
        return None

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Send the planted model."""
        for index in sink.missing():
            sink.write(index, self.model.chunk(index))

    def announce(self, announcement: Announcement) -> None:
        """Note the announcement."""
        self.announced = announcement

    def push(self, task: str, update: ChunkSource) -> None:
        """Take the update."""
        self.update = b"".join(update.chunk(index) for index in range(len(update.manifest.digests)))

    def report(self, evaluation: Evaluation) -> None:
        """Score nothing."""
        raise AssertionError("nothing is scored")

    def fail(self, task: str, code: str, message: str) -> None:
        """Note the refusal."""
        self.refusal = code

    def progress(self, task: str, done: int, total: int) -> int:
        """Return no committed steps."""
        return 0

    def close(self) -> None:
        """End."""


@dataclass
class Silo:
    """A silo in one run, as the hostile server sees it."""

    federation: "Federation"
    learner: Any
    policy: Policy
    audit: AuditLog
    state: AgentState
    rounds: int = 0

    def update(self, arrays: dict[str, Floats]) -> dict[str, Floats] | None:
        """Return the change of every array in the run's next round; None where the gate lets out nothing."""
        self.rounds += 1
        layout = self.federation.server.down
        server = Server(ModelBytes.from_arrays(layout, arrays))
        terms, approved = RunTerms.of(self.federation.run, "All"), self.federation.approved
        gate = OutboundGate(server, self.policy, self.audit, terms, self.state, approved=lambda: approved)
        worker = SiloWorker(gate, self.learner, MemoryBuffers(), admit=gate.admit)
        task = Task(f"{self.rounds}.train", TaskKind.TRAIN, self.rounds, server.model.manifest)
        worker.handle(Assigned(task))
        if server.announced is not None:
            worker.handle(Permit(task.id))
        if not server.update:
            return None
        self.federation.let_out += 1
        sent = np.frombuffer(server.update, np.uint8).copy()
        if self.federation.coding is not None:
            encoding = Encoding(self.federation.coding, layout, layout)
            encoding.round_update(sent, encoding.base(server.model.buffer()))
        after = read_arrays(layout, sent)
        return {name: after[name].astype(np.float64) - arrays[name] for name in arrays}


@dataclass
class Federation:
    """A run of FedAvg as the server describes it; by default a round is one step on everything that a silo has."""

    images: ImageSet
    rate: str
    network: str = "LeafCnn"
    epochs: int = 1
    batch: int = 1000
    test: ImageSet | None = None
    silos: int = 1
    """Silos that share the images; the server sees the mean of their updates alone."""
    coding: Coding | None = None
    rounds: int = 1
    approved: bool = False
    """Whether a person at the hospital has approved the run."""
    let_out: int = 0
    """Updates that gates let out so far."""
    seed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        sgd = {"learningRate": self.rate, "weightDecay": "0", "momentum": "0"}
        local = {"epochs": self.epochs, "batchSize": self.batch, "optimiser": {"sgd": sgd}}
        self.method = resolve(MethodSpec.model_validate({"name": "FedAvg", "local": local}))
        task = {"classification": {"classes": list(CLASSES)}}
        fields = {"task": task, "network": self.network, "imageSize": SIDE, "channels": 1, "augmentation": "Digits"}
        model = ModelDescription.model_validate(fields)
        self.server = build_server_learner(model=model, method=self.method, seed=1, test=self.test)
        layout = self.server.down.to_json()
        self.run = RunDescription(
            federation="bench", seed=1, model=model, method=self.method, rounds=self.rounds, mode="Synchronous", down=layout, up=layout
        )  # fmt: skip

    def start(self) -> dict[str, Floats]:
        """Return a model's arrays as they are before training."""
        arrays = read_arrays(self.server.down, self.server.initialise().buffer())
        return {name: array.copy() for name, array in arrays.items()}

    def update(self, arrays: dict[str, Floats], held: NDArray[np.int64], policy: Policy) -> dict[str, Floats] | None:
        """Return the mean change of every array over rounds and the silos with the images `held`, None where one refuses all of them."""
        changes = [self._update_of(arrays, part, policy) for part in np.array_split(held, self.silos)]
        sent = [change for change in changes if change is not None]
        return {name: np.mean([c[name] for c in sent], axis=0) for name in arrays} if len(sent) == self.silos else None

    def _update_of(
        self, arrays: dict[str, Floats], held: NDArray[np.int64], policy: Policy
    ) -> dict[str, Floats] | None:
        """Return the mean of what one silo lets out of a run with the same weights in every round."""
        with self.silo(held, policy) as silo:
            changes = [change for _ in range(self.rounds) if (change := silo.update(arrays)) is not None]
        return {name: np.mean([change[name] for change in changes], axis=0) for name in arrays} if changes else None

    @contextmanager
    def silo(self, held: NDArray[np.int64], policy: Policy) -> Iterator[Silo]:
        """Yield a silo with the images `held`, behind the agent's gate with a policy."""
        self.seed += 1
        layout, clip, noise = self.server.down, policy.clip_norm, policy.noise_std
        protection = Protection(
            clip_norm=float(clip) if clip else None,
            noise_std=float(noise) if noise else None,
            noise_ratio=policy.noise_ratio,
            noise_seed=self.seed,
        )
        with tempfile.TemporaryDirectory() as folder:
            images = self.images.select(held)
            learner = build_silo_learner(
                run=self.run, silo="a", labels="All", images=images, state=Path(folder), device="cpu"
            )
            state, audit = AgentState(Path(folder, "silo.crt")), AuditLog(Path(folder, "audit.jsonl"))
            state.set_joined(len(held))
            yield Silo(self, PrivateLearner(learner, layout, layout, protection), policy, audit, state)
            audit.close()


def features(arrays: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return what LeafCnn's dense layer is given, [n, 256], for images in 0 … 1."""
    x = (x - 0.5) / 0.5
    for name in ("conv1", "conv2"):
        x = max_pool2d(
            relu(torch.conv2d(x, arrays[f"encoder.{name}.weight"], arrays[f"encoder.{name}.bias"], padding=2)), 2
        )
    return x.flatten(1)


def tensors(arrays: dict[str, Floats]) -> dict[str, Tensor]:
    """Return arrays as tensors."""
    return {name: torch.from_numpy(np.array(array, np.float32)) for name, array in arrays.items()}


def planted(
    federation: Federation, policy: Policy, public: Floats, held: NDArray[np.int64], aimed: bool
) -> Floats | None:
    """Plant equal rows whose biases step over brightness; return candidates, [k, 1, 8, 8]."""
    arrays = federation.start()
    if aimed:
        arrays["encoder.conv2.weight"] *= GAIN  # the layer's input in large numbers, against noise in the biases
    activations = features(tensors(arrays), torch.from_numpy(public)).sum(1).numpy()
    weight, bias = arrays["encoder.dense.weight"], arrays["encoder.dense.bias"]
    count = AIMED if aimed else len(bias)
    edges = np.linspace(*np.quantile(activations, (1 - 2 / IMAGES, 1.0) if aimed else (0.0, 1.0)), count)
    scale = (0.1 if aimed else 1.0) / (edges[-1] - edges[0])
    weight[:], bias[:] = scale, -1e3
    bias[:count] = -scale * edges
    arrays["classifier.weight"][:] = np.linspace(-1, 1, len(CLASSES))[:, None] * (1.0 if aimed else 1e-3)
    arrays["classifier.bias"][:] = 0
    change = federation.update(arrays, held, policy)
    if change is None:
        return None
    rows, steps = change["encoder.dense.weight"][:count], change["encoder.dense.bias"][:count]
    rows, steps = np.diff(rows, axis=0, append=0), np.diff(steps, append=0)  # the last row: whoever is beyond all edges
    keep = np.argsort(-np.abs(steps))[: 2 * IMAGES]
    keep = keep[np.abs(steps[keep]) > 1e-6 * np.abs(steps).max()]
    noise = float(policy.noise_std or 0) / np.abs(steps[keep]).mean()
    wanted = torch.from_numpy((rows[keep] / steps[keep, None]).astype(np.float32))
    return inverted(tensors(arrays), wanted, torch.from_numpy(public), float(noise))


def planted_one(federation: Federation, policy: Policy, public: Floats, held: NDArray[np.int64]) -> Floats | None:
    """Plant one row everywhere, which only what is brighter than nearly all digits passes; return candidates, [2, 1, 8, 8]."""
    arrays = federation.start()
    arrays["encoder.conv2.weight"] *= GAIN
    activations = features(tensors(arrays), torch.from_numpy(public)).sum(1).numpy()
    weight, bias = arrays["encoder.dense.weight"], arrays["encoder.dense.bias"]
    weight[:] = 0.1 / (4 * activations.std())
    bias[:] = -weight[0, 0] * np.quantile(activations, 1 - 0.5 / IMAGES)
    arrays["classifier.weight"][:] = np.linspace(-1, 1, len(CLASSES))[:, None] * 8 / len(bias)
    arrays["classifier.bias"][:] = 0
    change = federation.update(arrays, held, policy)
    if change is None:
        return None
    row, step = change["encoder.dense.weight"].mean(0), change["encoder.dense.bias"].mean()
    wanted = torch.from_numpy((row / step)[None].astype(np.float32))
    return inverted(tensors(arrays), wanted, torch.from_numpy(public), 1.0)


def directions(
    federation: Federation, policy: Policy, public: Floats, held: NDArray[np.int64], each: int
) -> Floats | None:
    """Plant one row everywhere, in every `each` rounds another one, for what looks most as a digit does; return candidates, [k, 1, 8, 8]."""
    start, draws = federation.start(), np.random.default_rng(1)
    start["encoder.conv2.weight"] *= GAIN
    activations = features(tensors(start), torch.from_numpy(moved(public, draws))).numpy().astype(np.float64)
    middle, spread = activations.mean(0), np.cov(activations.T)
    spread += 0.1 * np.trace(spread) / len(spread) * np.eye(len(spread))
    mean_rows: list[Floats] = []
    with federation.silo(held, policy) as silo:
        for _ in range(federation.rounds // each):
            row = np.linalg.solve(spread, activations[draws.integers(len(activations))] - middle)
            row *= 0.025 / (activations @ row).std()
            arrays = {name: array.copy() for name, array in start.items()}
            arrays["encoder.dense.weight"][:] = row
            arrays["encoder.dense.bias"][:] = -np.quantile(activations @ row, 1 - 0.5 / IMAGES)
            outputs = len(arrays["encoder.dense.bias"])
            arrays["classifier.weight"][:] = np.linspace(-1, 1, len(CLASSES))[:, None] * 8 / outputs
            arrays["classifier.bias"][:] = 0
            changes = [change for _ in range(each) if (change := silo.update(arrays)) is not None]
            if step := sum(change["encoder.dense.bias"].mean() for change in changes):
                mean_rows.append(sum(change["encoder.dense.weight"].mean(0) for change in changes) / step)
    if not federation.let_out:
        return None
    wanted = torch.from_numpy(np.array(mean_rows, np.float32).reshape(len(mean_rows), len(middle)))
    return inverted(tensors(start), wanted, torch.from_numpy(public), 1.0)


def moved(images: Floats, draws: np.random.Generator) -> Floats:
    """Return images, [n, 1, 8, 8], four times over, moved by a pixel at most as training moves them."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    by = draws.integers(0, 3, (4, len(images), 2))
    crops = [padded[i, :, y : y + SIDE, x : x + SIDE] for each in by for i, (y, x) in enumerate(each)]
    return np.array(crops, np.float32)


def inverted(arrays: dict[str, Tensor], wanted: Tensor, public: Tensor, noise: float) -> Floats:
    """Search for images with these inputs of the dense layer, from what ridge regression on images that nobody holds guesses; return guesses, too."""
    known, pixels = features(arrays, public), public.flatten(1)
    middle = known.mean(0), pixels.mean(0)
    squares = (known - middle[0]).T @ (known - middle[0]) + (len(known) * 2 * noise**2 + 1e-4) * torch.eye(
        known.shape[1]
    )
    guess = torch.linalg.solve(squares, (known - middle[0]).T @ (pixels - middle[1]))
    first = ((wanted - middle[0]) @ guess + middle[1]).clamp(0, 1).view(-1, 1, SIDE, SIDE)
    x = first.clone().requires_grad_()
    optimiser = torch.optim.Adam([x], lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        ((features(arrays, x) - wanted) ** 2).sum().backward()
        optimiser.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return torch.cat([first, x.detach()]).numpy()


def gradient(federation: Federation, policy: Policy, groups: Sequence[NDArray[np.int64]], steps: int) -> Floats | None:
    """Search for images whose gradient points as the update does, silo by silo; labels are taken as known."""
    start = federation.start()
    arrays = tensors(start)
    names = sorted(arrays)
    parameters = [arrays[name].requires_grad_() for name in names]
    reconstructions = []
    for group in groups:
        change = federation.update(start, group, policy)
        if change is None:
            continue
        target = [torch.from_numpy(-change[name].astype(np.float32)) for name in names]
        labels = torch.from_numpy(federation.images.labels[group])
        x = torch.rand(
            len(group), 1, SIDE, SIDE, generator=torch.Generator().manual_seed(int(group[0])), requires_grad=True
        )
        optimiser = torch.optim.Adam([x], lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            hidden = relu(features(arrays, x) @ arrays["encoder.dense.weight"].T + arrays["encoder.dense.bias"])
            logits = hidden @ arrays["classifier.weight"].T + arrays["classifier.bias"]
            gradients = torch.autograd.grad(cross_entropy(logits, labels), parameters, create_graph=True)
            dot = sum((a * b).sum() for a, b in zip(gradients, target, strict=True))
            lengths = [sum((a * a).sum() for a in side).sqrt() for side in (gradients, target)]
            rough = (x.diff(dim=2).abs().mean() + x.diff(dim=3).abs().mean()) * 1e-3
            optimiser.zero_grad()
            (x.grad,) = torch.autograd.grad(1 - dot / (lengths[0] * lengths[1]) + rough, x)
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        reconstructions.append(x.detach().numpy())
    return np.concatenate(reconstructions) if reconstructions else None


def count_read(candidates: Floats, private: Floats) -> int:
    """Return how many private images are read, by the criterion above."""
    padded = np.pad(private, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = [padded[..., dy : dy + SIDE, dx : dx + SIDE] for dy in range(3) for dx in range(3)]
    errors = np.min([((candidates[:, None] - view[None]) ** 2).mean((2, 3, 4)) for view in views], axis=0)
    nearest = errors.argmin(1)
    good = -10 * np.log10(errors.min(1) + 1e-12) >= READ_DB
    return len(set(nearest[good]))


def accuracy(images: ImageSet, order: NDArray[np.int64], policy: Policy, rounds: int) -> float:
    """Return the accuracy on other digits that an honest FedAvg of three silos reaches behind such policies."""
    silos, test = np.split(order[: 3 * PER_SILO], 3), images.select(order[-TESTED:])
    federation = Federation(images, "0.03", "SmallCnn", epochs=5, batch=10, test=test)
    model = federation.start()
    for _ in range(rounds):
        changes = [change for held in silos if (change := federation.update(model, held, policy)) is not None]
        for name, array in model.items():
            model[name] = (array + np.mean([change[name] for change in changes], axis=0)).astype(array.dtype)
    report = federation.server.test(ModelBytes.from_arrays(federation.server.down, model), 1)
    return report.metrics["accuracy"]


def main() -> None:
    """Print the figures; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="of the search for images by their gradient")
    parts = [size for size in range(1, IMAGES + 1) if IMAGES % size == 0]
    parser.add_argument(
        "--group", type=int, default=4, choices=parts, help="images of a silo whose gradient is inverted"
    )
    parser.add_argument("--rounds", type=int, default=1, help="of the hostile server's run")
    parser.add_argument("--each", type=int, default=1, help="rounds with the same weights in the attack by directions")
    parser.add_argument("--approved", action="store_true", help="a person at the hospital has approved the run")
    attacks_known = ["planted", "planted, mean", "planted, aimed", "planted, one", "planted, directions", "gradient"]
    parser.add_argument("--attacks", nargs="+", default=attacks_known, choices=attacks_known)
    parser.add_argument("--honest", type=int, default=20, help="rounds of the honest federation; 0: none is played")
    parser.add_argument("--protections", nargs="+", default=[*POLICIES, *CODINGS], help="rows of the table")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # refusals are in the rows
    listing = list_digits(SiteClasses(CLASSES, {}))
    everything = np.stack(listing.sources)[:, None]
    order = np.random.default_rng(3).permutation(len(everything))
    held, others = order[:IMAGES], order[IMAGES:]
    names, ids = listing.ids, np.arange(len(everything), dtype=np.uint64)
    images = ImageSet(everything, listing.labels, names, names, listing.strata, CLASSES, ids)
    private, public = (everything[part].astype(np.float32) / 255 for part in (held, others))
    print(f"by chance (other digits as candidates): {count_read(public[: 4 * IMAGES], private)} of {IMAGES}")
    length = {"rounds": options.rounds, "approved": options.approved}
    wide, honest = Federation(images, "100", **length), Federation(images, "0.1", **length)
    shared = Federation(images, "100", silos=3, **length)
    groups = np.split(held, IMAGES // options.group)
    attacks: dict[str, Callable[[Policy], Floats | None]] = {
        "planted": lambda policy: planted(wide, policy, public, held, aimed=False),
        "planted, mean": lambda policy: planted(shared, policy, public, held, aimed=False),
        "planted, aimed": lambda policy: planted(wide, policy, public, held, aimed=True),
        "planted, one": lambda policy: planted_one(wide, policy, public, held),
        "planted, directions": lambda policy: directions(wide, policy, public, held, options.each),
        "gradient": lambda policy: gradient(honest, policy, groups, options.steps),
    }
    rows = []
    for protection in options.protections:
        fields = POLICIES.get(protection, BARE)
        policy = Policy.model_validate_json(json.dumps(fields))
        for federation in (wide, honest, shared):
            federation.coding = CODINGS.get(protection)
        for attack in options.attacks:
            for federation in (wide, honest, shared):
                federation.let_out = 0
            candidates = attacks[attack](policy)
            read = count_read(candidates, private) if candidates is not None and len(candidates) else 0
            updates = max(federation.let_out for federation in (wide, honest, shared))
            row = {"protection": protection, "policy": fields, "attack": attack, "read": read, "images": IMAGES}
            rows.append({**row, "rounds": options.rounds, "updates": updates, "refused": candidates is None})
            print(
                f"{protection:24} {attack:19} {read:3} of {IMAGES}, {updates} updates{' (refused)' if candidates is None else ''}",
                flush=True,
            )
    honest_accuracy = {}
    for protection, fields in POLICIES.items():
        if (
            options.honest
            and protection in options.protections
            and not fields.keys() & {"maximumRounds", "minimumSamples"}
        ):
            policy = Policy.model_validate_json(json.dumps(fields))
            honest_accuracy[protection] = accuracy(images, order, policy, options.honest)
            print(f"{protection:24} accuracy of an honest federation {honest_accuracy[protection]:.3f}", flush=True)
    if options.json:
        report = {"benchmark": "attack-inversion", "rows": rows, "accuracy": honest_accuracy}
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()

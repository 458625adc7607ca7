"""What the federation would do at this hospital, in plain words, and the digest by which the hospital approves it."""

import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from pydantic import Field, ValidationError

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import expect
from anchorage.api.piece_faults import shorten
from anchorage.api.regular_files import read_regular
from anchorage.api.run import RunDescription
from anchorage.api.slot import UNKNOWN_ALTERNATIVE
from anchorage.api.text import printable
from anchorage.engine.accounting import epsilon
from anchorage.engine.hooks import AggregationHooks, EncodingHooks
from anchorage.methods import PRESETS
from anchorage.methods.preset import auxiliary_arrays
from anchorage.transport.messages import VALIDATION
from anchorage.transport.pki import key_fingerprint
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.budget import BudgetGuard
from anchorage_silo.config import SiloConfig
from anchorage_silo.confinement import AS_ROOT, runs_as_root, words
from anchorage_silo.files import state_unusable
from anchorage_silo.limits import Limits, stages_of, weigher_of
from anchorage_silo.policy import Policy
from anchorage_silo.used_packages import used_packages
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, extras_of, judge

_log = logging.getLogger(__name__)

PACKAGES = ("anchorage", "numpy", "torch", "torchvision", "timm", "monai")
"""Packages whose versions are part of what is approved."""
IMAGE_VARIABLE = "ANCHORAGE_IMAGE"
"""Environment variable in which a pod names its container image."""


class Leaving(Document):
    """Something that leaves the hospital."""

    name: str = Field(description="Name; of auxiliary data, as `allowedAuxiliaryData` names it.")
    size: str = Field(description="Size, or shape and dtype.")
    when: str = Field(description="How often it leaves.")
    reveals: str = Field(description="What it is, and what it reveals.")
    refused: bool = Field(False, description="Whether the hospital's policy refuses it.")
    reason: str = Field("", description="Why the policy refuses it, with the code of the failure; empty: it does not.")


class Stage(Document):
    """A method's rounds."""

    method: str = Field(description="Name of the method.")
    summary: str = Field(description="What it computes.")
    training: str = Field(description="Work of the silo in one round.")
    rounds: int = Field(description="Number of rounds.")
    leaves: tuple[Leaving, ...] = Field(description="What leaves the hospital.")
    server_learns: str = Field(description="What the server learns beyond the weights.")
    silos_learn: str = Field(description="What other silos learn.")


class Review(Document):
    """What a federation would do at a silo."""

    digest: str = Field(description="SHA-256 of description, package versions, image and authority: what is approved.")
    federation: str = Field(description="Name of the federation.")
    silo: str = Field(description="Name of the silo.")
    labels: str = Field(description="Which labels of the images may be used.")
    server: str = Field(description="Address of the server that runs the federation.")
    authority: str = Field(description="SHA-256 of the key of the federation's authority.")
    network: str = Field(description="Network that is trained.")
    classes: tuple[str, ...] = Field(description="What the model tells apart.")
    initial: str = Field(
        description="Weights to start from, by file or name; empty: random ones, or the server's choice."
    )
    mode: str = Field(description="Synchronous or Asynchronous.")
    stages: tuple[Stage, ...] = Field(description="Methods in their order.")
    updates: int = Field(description="Updates that may leave at most.")
    evaluations: int = Field(description="Models that may be scored on the silo's images at most.")
    needs_approval: bool = Field(description="Whether nothing runs before the digest is approved.")
    protection: str = Field(description="What the policy and the method have done to an update before it leaves.")
    trainer: str = Field(description="What keeps the trainer process from the agent's key, certificates and audit log.")
    server_noise: str = Field(
        "", description="Noise that the server says to add before others get the model; empty: none."
    )
    secure_aggregation: bool = Field(False, description="Whether the server learns sums of updates, and no single one.")
    minimum_survivors: int = Field(
        0, description="Silos whose sum the server may learn at least; 0 where it learns each update."
    )
    privacy: str = Field(
        "", description="What of the policy's privacy budget is spent, and what the run needs; empty: none."
    )
    policy: dict[str, object] = Field(description="The hospital's policy; empty: none.")
    packages: dict[str, str] = Field(description="Versions of the packages that compute.")
    outside: dict[str, str] = Field(
        {},
        description="Versions of the packages of other authors that the run uses here; empty: it runs no code but Anchorage's and its libraries'.",
    )
    image: str = Field(description="Container image, if it is known.")

    @classmethod
    def of(cls, text: str, config: SiloConfig, policy: Policy) -> "Review":
        """Work it out from a run's description (JSON).

        Raises
        ------
        AnchorageError
            The description cannot be read, or the authority's certificate.
        """
        run = read_description(text)
        try:
            authority = key_fingerprint(read_regular(config.authority))
        except OSError as error:
            raise state_unusable(config.authority, error) from error
        needed = Limits.of(run, config.labels)
        limits = policy.limits(needed)
        packages, image = _versions(), os.environ.get(IMAGE_VARIABLE, "")
        outside = used_packages(run, config)
        versions = [f"{name} {package_version}" for name, package_version in (*packages.items(), *outside.items())]
        reviewed_text = "\0".join((text, authority, image, *versions))
        return cls(
            digest=hashlib.sha256(reviewed_text.encode()).hexdigest(),
            federation=run.federation,
            silo=config.silo,
            labels=config.labels,
            server=config.server,
            authority=authority,
            network=f"{run.model.network} on {run.model.input_text}",
            classes=tuple(run.model.task.outputs),
            initial=run.model.initial or run.model.weights or "",
            mode=run.mode,
            stages=tuple(
                _stage(run, config, policy, number, method, up) for number, (method, up, _) in enumerate(stages_of(run))
            ),
            updates=limits.updates,
            evaluations=limits.evaluations,
            needs_approval=policy.asks_approval(needed.planned),
            protection=_protection(policy, run.method),
            trainer=words(network=config.devices > 1) + (f"; {AS_ROOT}" if runs_as_root() else ""),
            server_noise=expect(run.method.aggregation, AggregationHooks).server_noise,
            secure_aggregation=run.secure_aggregation is not None,
            minimum_survivors=run.secure_aggregation.minimum_survivors if run.secure_aggregation else 0,
            privacy=_privacy(BudgetGuard.of(policy, run, config.state), limits.updates),
            policy=policy.model_dump(by_alias=True, exclude_unset=True, mode="json"),
            packages=packages,
            outside=dict(outside),
            image=image,
        )

    def words(self) -> Iterator[str]:
        """Yield it line by line, safe to show."""
        return map(printable, self._lines())

    def log(self) -> None:
        """Log it line by line."""
        for line in self.words():
            _log.info("review: %s", line)

    def _lines(self) -> Iterator[str]:
        classes = ", ".join(self.classes)
        yield f"Federation {self.federation} asks silo {self.silo} (labels used: {self.labels}) to take part."
        yield f"Who runs it: the server {self.server}; SHA-256 of its authority's key: {self.authority}"
        yield f"Trained: {self.network}, to tell {classes}; {self.mode.lower()}"
        yield f"Weights to start from: {self.initial or 'what the server sends'}"
        for stage in self.stages:
            yield f"{stage.method}, {stage.rounds} rounds: {stage.summary}"
            yield f"  computed here: {stage.training}"
            for array in stage.leaves:
                refused = f" REFUSED by the policy: {array.reason}" if array.refused else ""
                yield f"  leaves {array.when}: {array.name}, {array.size}: {array.reveals}{refused}"
            yield f"  the server learns: {stage.server_learns}; other silos learn: {stage.silos_learn}"
        digest = "" if self.privacy else ", and a keyed digest that shows whether they change"
        yield f"Leaves on joining: the number of images{digest}"
        yield f"Limits here: {self.updates} updates and {self.evaluations} scored models in all"
        yield f"Protection here: {self.protection}"
        if self.needs_approval:
            yield "Approval: nothing runs here before somebody has approved the digest below"
        yield f"The trainer process is confined by {self.trainer}"
        if self.server_noise:
            yield f"At the server, which sees each update without it: it says that it adds {self.server_noise}; nobody here can check that"
        if self.secure_aggregation:
            fewest = f"two thirds of a round's silos, and of no fewer than {self.minimum_survivors}"
            yield f"Secure aggregation: updates leave masked; the server learns the sum of at least {fewest}"
        yield f"Differential privacy here: {self.privacy or 'none (no privacyBudget in the policy)'}"
        rules = ", ".join(f"{name}: {value}" for name, value in self.policy.items()) or "none, only the limits above"
        yield f"Policy: {rules}"
        versions = ", ".join(f"{name} {package_version}" for name, package_version in self.packages.items())
        yield f"Software: {versions}{f', image {self.image}' if self.image else ''}"
        others = ", ".join(f"{name} {package_version}" for name, package_version in self.outside.items())
        yield f"Packages of other authors: {f'{others}; the trainer loads them, and the agent does not' if others else 'none'}"
        yield f"Digest: {self.digest}"


def read_description(text: str) -> RunDescription:
    """Read a run's description (JSON).

    Raises
    ------
    AnchorageError
        It has unknown or wrong fields.
    """
    try:
        run = RunDescription.model_validate_json(text)
        for layout in (run.down, run.up, *(each for stage in run.warm_up for each in (stage.down, stage.up))):
            Layout.from_json(layout)
    except ValueError as error:
        raise AnchorageError(transfer.MALFORMED_MESSAGE, _wrong_fields(error)) from error
    return run


def _wrong_fields(error: ValueError) -> str:
    """Return what is wrong with a description; a piece that no installed package has is named."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    missing = next((shorten(each["msg"]) for each in details if each["type"] == UNKNOWN_ALTERNATIVE), None)
    if missing is not None:
        return f"the run's description names what is not installed here: {missing}"
    return (
        f"the run's description has {len(details) or 1} unknown or wrong fields; bring both sides to the same version"
    )


def _stage(
    run: RunDescription, config: SiloConfig, policy: Policy, number: int, method: ResolvedMethod, up: str
) -> Stage:
    layout, preset, budgeted = Layout.from_json(up), PRESETS.get(method.name), policy.privacy_budget is not None
    last, before = run.ends[number], run.ends[number - 1] if number else 0
    asked = Request(RequestKind.UPDATE, RunTerms.of(run, config.labels), round=last)

    def leaving(
        name: str, size: str, when: str, reveals: str, *sent: str, kind: RequestKind = RequestKind.UPDATE
    ) -> Leaving:
        refusal = judge(policy, replace(asked, kind=kind, auxiliary=frozenset(sent)), Past()).refusal
        refusal_reason = "" if refusal is None else str(refusal)
        return Leaving(
            name=name, size=size, when=when, reveals=reveals, refused=bool(refusal_reason), reason=refusal_reason
        )

    coding = expect(method.encoding, EncodingHooks).coding()
    size = f"{layout.nbytes:,} bytes, {len(layout.tensors)} arrays" + (f", {coding.words}" if coding else "")
    control = ", with control variates" if extras_of([layout]) else ""
    weights = f"the model's weights after training here{control}; a hostile server can read images out of them, see Protection"
    figures = (
        "the number of images and the privacy loss so far"
        if budgeted
        else "how many images were trained on, had labels and were accepted, the loss, the time"
    )
    often = "once a round"
    leaves = [leaving("update", size, often, weights), leaving("counts and figures", "a few numbers", often, figures)]
    for array in auxiliary_arrays(method, up=True):
        leaves.append(leaving(array.name, array.shape, often, array.meaning, array.name))
    weigher = weigher_of(method, run)
    if weigher.evaluated:
        counted = {array.name: array.shape for array in auxiliary_arrays(method, up=True)}.get(VALIDATION, "counts")
        when, reveals = "for every other silo's update", "how the other silos' models do on its validation images"
        leaves.append(leaving(VALIDATION, counted, when, reveals, VALIDATION, kind=RequestKind.SCORES))
    if run.silo_percent and config.labels != "None":
        where = f"of the {run.silo_percent} % that it keeps from training"
        for summed in run.model.task.tally_arrays():
            size = f"{' × '.join(map(str, summed.shape))} {summed.dtype}".strip()
            reveals = f"{summed.meaning}, {where}"
            leaves.append(leaving(summed.name, size, often, reveals, summed.name, kind=RequestKind.SCORES))
    return Stage(
        method=method.name,
        summary=preset.summary if preset else "a method that this version does not know by name",
        training=_training(method, config.labels, weigher.repetitions),
        rounds=last - before,
        leaves=tuple(leaves),
        server_learns=preset.reveals_to_server if preset else "what the arrays above reveal",
        silos_learn=preset.reveals_to_silos if preset else "not declared",
    )


def _training(method: ResolvedMethod, labels: str, repetitions: int) -> str:
    local, unlabelled = method.local, method.local.unlabelled
    epochs = (unlabelled.epochs if labels == "None" else None) or local.epochs
    batch = (unlabelled.batch_size if labels == "None" else None) or local.batch_size
    passes = f"up to {local.cycle.max_epochs}" if local.cycle else str(epochs)
    work = f"{passes} epochs" if local.steps is None or local.cycle else f"{local.steps} steps"
    often = f", up to {repetitions} times" if repetitions > 1 else ""
    return f"{work} over the silo's images in batches of {batch} per round{often}"


def _protection(policy: Policy, method: ResolvedMethod) -> str:
    parts = []
    if (norm := policy.bound(method)) is not None:
        rule = (
            "clipNorm of the policy"
            if policy.clip_norm is not None and float(policy.clip_norm) == norm
            else "as the method asks"
        )
        parts.append(f"an update's change is scaled down to the norm {norm:g} ({rule})")
    if policy.privacy_budget is not None and (dp_sgd := policy.privacy_budget.dp_sgd) is not None:
        parts.append(
            f"DP-SGD: each image's gradient is scaled down to the norm {dp_sgd.clip_norm}, with {dp_sgd.noise_multiplier} times that as noise"
        )
    if noisy := float(policy.noise_std or 0) > 0:
        parts.append(f"noise of standard deviation {policy.noise_std} is added to every number")
    if policy.noise_ratio:
        parts.append(
            f"noise as large as {policy.noise_ratio:g} times its change is added to every array, which guarantees nothing: it "
            "protects one update, and out of every few more a hostile server reads an image"
            + (_by_default(policy) if policy.undecided else "")
        )
    if not parts:
        stated = "noiseStd" if policy.relative_noise is None else "relativeNoise"
        return f'none: updates leave as they are ({stated}: "0" of the policy)'
    noised = noisy or policy.noise_ratio is not None or policy.privacy_budget is not None
    return " and ".join(parts) + ("" if noised else "; a norm alone hides no image (noiseStd of the policy is not set)")


def _by_default(policy: Policy) -> str:
    """Say what a hospital has that states no noise, and how it decides."""
    return (
        f", as the policy states no noise; an update must come from {policy.least_images} images or more. Rounds of whole passes learn less with "
        'it, rounds of a few steps hardly; relativeNoise: "0" states that the server is trusted with the images'
    )


def _privacy(guard: BudgetGuard | None, updates: int) -> str:
    """Say what is spent and what further updates cost; raises AnchorageError where the ledger cannot be read."""
    if guard is None:
        return ""
    ledger, image = guard.ledger, guard.budget.dp_sgd is not None
    unit = "one image more or less" if image else "all images of the silo exchanged for others"
    spent_budget = f"epsilon {ledger.spent_epsilon():.4g} of {ledger.epsilon:g} is spent, at delta {ledger.delta:g}; protected: {unit}"
    if image:
        return f"{spent_budget}; what an update costs depends on the number of images, and one beyond the budget is refused before training"
    each = guard.mechanism(1, 0)
    fits = ledger.lasts(each, updates)
    return f"{spent_budget}; a first update costs {epsilon([each], ledger.delta):.4g}, and {fits} of at most {updates} fit into what is left"


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions

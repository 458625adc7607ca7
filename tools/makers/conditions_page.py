"""The page about conditions, their reasons and Events: docs/conditions.md."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from anchorage_operator import reasons as source

PAGE = Path("docs/conditions.md")

CONDITIONS = (
    (
        "Federation",
        "Accepted",
        "The spec is valid and in use. Its message names silos that would never train, and labels that the method does not read.",
    ),
    ("Federation", "CertificatesValid", "The certificates of the certificate authority and the server are valid."),
    ("Federation", "ServerAvailable", "The server is running and responds to the operator."),
    ("Federation", "QuorumMet", "At least `spec.protocol.minSilos` silos are connected, or training has finished."),
    (
        "Federation",
        "Ready",
        "All of the above are true; otherwise the reason is that of the first one that is not. `kubectl get fed` shows it.",
    ),
    (
        "Federation",
        "Succeeded",
        "All rounds are committed, the models are written, and MLflow has the results or Tracked says what it lacks; `Unknown` until then. "
        "`kubectl wait --for=condition=Succeeded fed/NAME`.",
    ),
    ("Federation", "Failed", "Training cannot continue until the cause named by the reason is fixed."),
    (
        "Federation",
        "Tracked",
        "MLflow has all results; `False` while it does not take them, `Unknown` while they are sent. Neither training nor Ready depends on it.",
    ),
    ("Silo", "Accepted", "The spec is valid and its Federation exists."),
    (
        "Silo",
        "Approved",
        "The silo may be a member; `Unknown` until it is approved or denied. The operator does not change a person's decision.",
    ),
    ("Silo", "AgentAvailable", "Managed silos: the agent's pod is ready."),
    ("Silo", "Enrolled", "The silo has a valid certificate."),
    ("Silo", "Connected", "The agent is connected to the server."),
    ("Silo", "Ready", "All of the above are true; otherwise as for a Federation."),
)
"""Kind, condition, and when it is True."""

EVENTS = (
    ("Accepted, InvalidSpec, ImmutableFieldChanged", "The spec was accepted, or was not."),
    (
        "ServerAvailable, TrainingStarted, CheckpointRestored",
        "The server responds; starts the first round; has resumed from a checkpoint.",
    ),
    (
        "SiloConnected, SiloLost, QuorumMet, QuorumLost",
        "Silos connected or disconnected; more than five at once share an Event.",
    ),
    ("Progress", "Another tenth of the rounds is committed."),
    ("Suspended, Resumed", "`spec.suspend` changed."),
    ("CertificateRotated, CertificateExpiring", "The server's certificate was renewed; a certificate expires soon."),
    ("Succeeded, Failed", "Training has finished, or cannot continue."),
    ("Tracked", "MLflow has all results."),
    ("SiloApproved, SiloEnrolled, PendingApproval, TokenExpired", "On the Silo: the steps of its admission."),
    ("ApplyRefused", "The API server rejected an object; the message is the API server's."),
    ("ApplyContested", "Somebody, such as a mutating policy, changes a field back whenever the operator writes it."),
    ("VolumeGrows, VolumeNotGrown", "A volume claim requests more; the API server refuses that."),
    ("NamespaceDenied, NamespaceReadable", "On the operator's pod: a namespace cannot be read; it can be read again."),
    (
        "Any of the reasons above",
        "A pod of the Federation or of the Silo has a problem.",
    ),
)

_HEAD = """\
# Conditions, reasons and Events

What `kubectl describe fed` and `kubectl describe silo` say, and what to do; `make generate` makes this page.

A condition's `status` says whether it holds, its `reason` is a word below, or the name of the [error](errors.md) that ended a process, and its
`message` has the particulars. `lastTransitionTime` is when the status last changed.
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a condition."""

    name: str
    on: str
    """Conditions that can have it."""
    meaning: str
    remedy: str
    """How to fix it; empty where nothing is wrong."""


def reasons() -> Iterator[Reason]:
    """Yield the reasons with what is written below them, in the module's order.

    Raises
    ------
    ValueError
        A reason stands there without its conditions and its meaning.
    """
    tree = ast.parse(Path(source.__file__).read_text(encoding="utf-8"))
    for statement, below in pairwise([*tree.body, ast.Pass()]):
        if isinstance(statement, ast.Assign):
            match statement.value, below:
                case ast.Constant(value=str(name)), ast.Expr(value=ast.Constant(value=str(text))):
                    on, _, rest = text.partition(": ")
                    meaning, _, remedy = rest.partition("\n\n")
                    yield Reason(name, " ".join(on.split()), " ".join(meaning.split()), " ".join(remedy.split()))
                case _:
                    raise ValueError(f"line {statement.lineno} of {source.__file__}: the reason has no meaning")


def page() -> str:
    """Return the page: reasons that want something done, then those that do not."""
    lines = [_HEAD, "## Conditions", "", "| object | condition | True when |", "| --- | --- | --- |"]
    lines += [f"| {kind} | `{name}` | {meaning} |" for kind, name, meaning in CONDITIONS]
    named = sorted(reasons(), key=lambda each: each.name)
    lines += ["", "## Reasons", "", "In brackets the conditions that can have it, then what to do.", ""]
    lines += [f"- `{each.name}` ({each.on}): {each.meaning} **{each.remedy}**" for each in named if each.remedy]
    lines += ["", "Nothing is to be done about these:", ""]
    lines += [f"- `{each.name}` ({each.on}): {each.meaning}" for each in named if not each.remedy]
    lines += ["", "## Events", "", "Posted on transitions only.", ""]
    lines += [f"- {names}: {meaning}" for names, meaning in EVENTS]
    return "\n".join(lines) + "\n"


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the page; nothing of it depends on the checkout."""
    return {PAGE: page()}

"""The page about conditions, their reasons and Events: docs/conditions.md."""

from collections.abc import Mapping
from pathlib import Path

from anchorage_operator.reasons import REASONS

PAGE = Path("docs/conditions.md")

CONDITIONS = (
    ("Federation", "Accepted", "The spec has no mistake and is in force."),
    ("Federation", "CertificatesValid", "The authority's and the server's certificates hold."),
    ("Federation", "ServerAvailable", "The server runs and answers the operator."),
    ("Federation", "QuorumMet", "At least `spec.protocol.minSilos` silos are connected, or training is over."),
    (
        "Federation",
        "Ready",
        "All of the above, or what is wrong first: the columns READY and REASON of `kubectl get fed`.",
    ),
    (
        "Federation",
        "Succeeded",
        "Every round is committed; `Unknown` while that is open. `kubectl wait --for=condition=Succeeded fed/NAME`.",
    ),
    ("Federation", "Failed", "The run cannot go on until somebody mends what the reason names."),
    ("Silo", "Accepted", "The spec has no mistake and its Federation exists."),
    (
        "Silo",
        "Approved",
        "The silo may be a member; `Unknown` until somebody decides. A person's decision has another reason than the "
        "operator's own, and the operator leaves it alone.",
    ),
    ("Silo", "AgentAvailable", "Managed silos: the agent's pod is ready."),
    ("Silo", "Enrolled", "The silo has a certificate that holds."),
    ("Silo", "Connected", "The server hears the agent."),
    ("Silo", "Ready", "All of the above, or what is wrong first."),
)
"""Kind, condition, and when it is True."""

EVENTS = (
    ("Accepted, InvalidSpec, ImmutableFieldChanged", "The spec came into force, or did not."),
    ("ServerAvailable, TrainingStarted, CheckpointRestored", "The server answers; plays its first round; is back."),
    ("SiloConnected, SiloLost, QuorumMet, QuorumLost", "Silos come and go; more than five at once share an Event."),
    ("Progress", "A further tenth of the rounds is committed."),
    ("Suspended, Resumed", "`spec.suspend` changed."),
    ("CertificateRotated, CertificateExpiring", "The server's certificate was renewed; one ends soon."),
    ("Succeeded, Failed", "The run is over, or cannot go on."),
    ("SiloApproved, SiloEnrolled, PendingApproval, TokenExpired", "At the Silo: its way in."),
    ("ApplyRefused", "The API server refused an object; the message is its own."),
    ("any reason of the table above", "A pod is in trouble; told at the Federation, or at the Silo whose agent it is."),
)

_HEAD = """\
# Conditions, reasons and Events

What `kubectl describe fed` and `kubectl describe silo` say, and what to do. This page is generated from
`anchorage_operator.reasons` by `make generate`.

A condition's `status` answers whether it holds, its `reason` is one word of the tables below, its `message` has the particulars.
`lastTransitionTime` is when the status last changed. A process that ends with a failure of the catalogue (`ANC-1234 Reason: …`)
makes that failure's reason the condition's, so each reason of the [catalogue](errors/README.md) may stand here too.
"""


def page() -> str:
    """Return the page."""
    lines = [_HEAD, "## Conditions", "", "| object | condition | is True when |", "| --- | --- | --- |"]
    lines += [f"| {kind} | `{name}` | {meaning} |" for kind, name, meaning in CONDITIONS]
    lines += ["", "## Reasons", "", "| reason | stands at | means | what to do |", "| --- | --- | --- | --- |"]
    for reason in sorted(REASONS.values(), key=lambda each: each.name):
        lines.append(f"| `{reason.name}` | {reason.on} | {reason.meaning} | {reason.remedy or 'Nothing.'} |")
    lines += ["", "## Events", "", "Few, and only on transitions.", "", "| reason | told when |", "| --- | --- |"]
    lines += [f"| {names} | {meaning} |" for names, meaning in EVENTS]
    return "\n".join(lines) + "\n"


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the page; nothing of it depends on the checkout."""
    return {PAGE: page()}

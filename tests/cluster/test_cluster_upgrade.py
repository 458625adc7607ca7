"""A newer chart reaches running federations one at a time, after a commit; nothing of what was committed is lost."""

from typing import Any

from cluster_documents import federation, managed_silo
from cluster_namespace import Namespace
from test_cluster_losses import committed_rounds

STUDIES = ("first", "second")
ROUNDS = 100_000  # nobody waits for the last one
EPOCHS = 2


def newer(namespace: Namespace) -> dict[str, Any]:
    """Return values under which every server's pod is another one, as with another image."""
    defaults = namespace.site.chart_values().get("defaults", {})
    server = {**defaults.get("server", {}), "labels": {"version": "newer"}}
    return {"defaults": {**defaults, "server": server}, "operator": _operator(namespace)}


def _operator(namespace: Namespace) -> dict[str, Any]:
    return {**namespace.site.chart_values().get("operator", {}), "upgradesAtOnce": 1}


def is_newer(pod: dict[str, Any] | None) -> bool:
    """Return whether a pod is of these values."""
    return pod is not None and pod["metadata"]["labels"].get("version") == "newer"


def test_servers_are_replaced_one_after_the_other(started: Namespace) -> None:
    for name in STUDIES:
        study, silo = federation(ROUNDS, epochs=EPOCHS, min_silos=1), managed_silo(f"{name}-silo", 0)
        study["metadata"]["name"] = silo["spec"]["federation"] = name
        started.apply(study, silo)
    for name in STUDIES:
        started.wait_for_round(name, 1)
    started.install_chart(values=newer(started))

    def replaced() -> set[str]:
        return {name for name in STUDIES if is_newer(started.pod(f"{name}-server-0"))}

    (name,) = started.eventually("a server is another pod, and only one: its turn takes half a minute", replaced)
    started.wait_for_round(name, started.round_of(name) + 1)
    rounds = committed_rounds(started, name)
    assert rounds == list(range(len(rounds)))

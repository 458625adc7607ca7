"""What a federation's documents may set in its pods, by the operator's settings.

The chart's ValidatingAdmissionPolicy refuses the same at the API server, where there is one; here it holds without it, for objects of
before, and where the platform's list became shorter: what is not permitted is refused, and never built into a pod.
"""

from collections.abc import Iterable, Iterator

from anchorage.api.federation import Federation, FederationSpec, Managed, Silo
from anchorage.api.mistakes import FieldPath, Mistake
from anchorage.api.model import WEIGHTS_CLAIM
from anchorage.api.pod import PodOverrides
from anchorage.api.pod_limits import ClaimLimits
from anchorage_operator.observed import Observed
from anchorage_operator.settings import OperatorSettings


def federation_mistakes(federation: Federation, observed: Observed, settings: OperatorSettings) -> Iterator[Mistake]:
    """Yield what a Federation sets in its server's pod and may not."""
    server, place = federation.spec.server, ("spec", "server")
    yield from settings.pod_overrides.mistakes(server.pod, server.resources, place)
    claims = federation_claims(federation.spec) | _mounted_claims(server.pod, place)
    yield from claim_limits(observed, settings).mistakes(claims)


def silo_mistakes(silo: Silo, observed: Observed, settings: OperatorSettings) -> Iterator[Mistake]:
    """Yield what a Silo sets in its managed agent's pod and may not."""
    managed, place = silo.spec.managed, ("spec", "managed")
    if managed is not None:
        yield from settings.pod_overrides.mistakes(managed.pod, managed.resources, place)
        claims = managed_claims(managed) | _mounted_claims(managed.pod, place)
        yield from claim_limits(observed, settings).mistakes(claims)


def claim_limits(observed: Observed, settings: OperatorSettings) -> ClaimLimits:
    """Return which claims the federation's documents may name."""
    reserved = (each.split("/", 1) for each in settings.reserved_claims)
    names = frozenset(name for namespace, name in reserved if namespace == observed.namespace)
    return ClaimLimits(observed.name, observed.claim_federations, names)


def permitted_pod(pod: PodOverrides, observed: Observed, settings: OperatorSettings) -> PodOverrides:
    """Return the part of a document's pod that it may set."""
    overrides, limits = settings.pod_overrides.restrict(pod), claim_limits(observed, settings)
    volumes = tuple(mount for mount in overrides.volumes if not limits.why_not(mount.claim_name))
    return overrides.model_copy(update={"volumes": volumes})


def permitted_claims(claims: Iterable[str], observed: Observed, settings: OperatorSettings) -> set[str]:
    """Return those of a document's claims with data that it may name."""
    limits = claim_limits(observed, settings)
    return {claim for claim in claims if not limits.why_not(claim)}


def federation_claims(spec: FederationSpec) -> dict[FieldPath, str]:
    """Return the volume claims that the server mounts by the fields that name them: anchors, images to score, initial weights."""
    places = {"anchors": ("anchorData",), "validation": ("evaluation", "validation"), "test": ("evaluation", "test")}
    claims: dict[FieldPath, str] = {
        ("spec", *places[name], "claimName"): section.claim_name
        for name, section in spec.server_data.items()
        if section.claim_name is not None
    }
    if spec.model.initial is not None:
        claims["spec", "model", "initial"] = spec.model.initial.split("/", 1)[0]
    if spec.model.weights is not None:
        claims["spec", "model", "weights"] = WEIGHTS_CLAIM
    return claims


def managed_claims(managed: Managed) -> dict[FieldPath, str]:
    """Return the volume claims that a managed agent mounts by the fields that name them: images and policy."""
    claims: dict[FieldPath, str] = {}
    if managed.data.claim_name is not None:
        claims["spec", "managed", "data", "claimName"] = managed.data.claim_name
    if managed.policy is not None and "/" in managed.policy:
        claims["spec", "managed", "policy"] = managed.policy.split("/", 1)[0]
    return claims


def _mounted_claims(pod: PodOverrides, place: FieldPath) -> dict[FieldPath, str]:
    return {(*place, "pod", "volumes", index, "claimName"): each.claim_name for index, each in enumerate(pod.volumes)}

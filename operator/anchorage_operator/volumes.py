"""The volumes of servers and agents: a claim grows with its spec where the storage class allows; nothing else of it can change."""

from collections.abc import Iterator

from anchorage.api.pod import Storage
from anchorage.transport.kube.resources import Json
from anchorage_operator.drift import parse_quantity
from anchorage_operator.names import STATE_VOLUME, agent_name, involved_object, server_name
from anchorage_operator.observed import Observed
from anchorage_operator.planned import GrowClaim
from anchorage_operator.situation import Situation


def claim_template(observed: Observed, name: str, storage: Storage) -> tuple[str, str | None]:
    """Return size and class in the claim template of a StatefulSet, which stay as they were when it was made."""
    child = observed.children.get(("StatefulSet", name))
    for claim in child["spec"].get("volumeClaimTemplates", ()) if child is not None else ():
        return str(claim["spec"]["resources"]["requests"]["storage"]), claim["spec"].get("storageClassName")
    return storage.size, storage.class_name


def volume_effects(situation: Situation) -> Iterator[GrowClaim]:
    """Yield the claims that are smaller than their spec."""
    for name, storage, owner in _volumes(situation):
        claim = f"{STATE_VOLUME}-{name}-0"
        current_size, asked = (
            parse_quantity(situation.observed.claim_sizes.get(claim, "")),
            parse_quantity(storage.size),
        )
        if current_size is not None and asked is not None and asked > current_size:
            yield GrowClaim(claim, storage.size, involved_object(owner))


def volume_note(situation: Situation, name: str, storage: Storage, path: str) -> str:
    """Say what of a StatefulSet's volume is not as its spec says and cannot become so; empty if there is nothing."""
    _, class_name = claim_template(situation.observed, name, storage)
    current_size = situation.observed.claim_sizes.get(f"{STATE_VOLUME}-{name}-0")
    if class_name != storage.class_name:
        return f"{path}.className is {storage.class_name}, but the volume was created with {class_name} and keeps it"
    sizes = [parse_quantity(storage.size), parse_quantity(current_size or "")]
    if sizes[0] is not None and sizes[1] is not None and sizes[0] < sizes[1]:
        return f"{path}.size is {storage.size}, but the volume has {current_size}, and volumes do not shrink"
    return ""


def _volumes(situation: Situation) -> Iterator[tuple[str, Storage, Json]]:
    if situation.in_use is not None:
        yield server_name(situation.observed.name), situation.in_use.typed.spec.server.storage, situation.federation
    for name, silo in situation.silos_in_use.items():
        if silo.typed.spec.managed is not None:
            yield agent_name(name), silo.typed.spec.managed.storage, silo.object

"""Reconciles one federation: observe, plan, carry out. Every reconcile looks at the whole state, so no event can be missed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anchorage.api.errors import AnchorageError
from anchorage.api.status import FederationStatus
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json, kube_object
from anchorage.transport.retry import RetryPolicy
from anchorage_operator.cache import Cache, Key, Ref
from anchorage_operator.drift import first_difference
from anchorage_operator.events import EventPoster, last_refusal, volume_failure
from anchorage_operator.failed_reconcile import tell_failed_reconcile
from anchorage_operator.identity import Identity, InvitationChangedError
from anchorage_operator.names import (
    APPLIED_HASH,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    OPERATED_BY,
    authority_name,
    involved_object,
)
from anchorage_operator.observed import Invitation, Observed
from anchorage_operator.plan import plan
from anchorage_operator.planned import Effect, Event, GrowClaim, Plan, PutMembers, Refuse, Sign
from anchorage_operator.pods import awaits_volumes
from anchorage_operator.poller import Answer, Poller
from anchorage_operator.secret_facts import SecretFacts, damage_of
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.upgrades import Turns

SECRETS_WHEN_WELL_SECONDS = 900.0
"""How long Secrets are cached while the server responds, which it could not without its certificate."""
SECRETS_WHEN_NOT_SECONDS = 120.0
SECRETS_WHEN_ASKED_SECONDS = 2.0
"""The same while signing requests wait."""
SOON_SECONDS = 0.1
"""Pause after a reconcile that carried out effects; doubles each time in a row."""
GROWTH_SECONDS = 900.0
"""After which a volume that the API server would not enlarge is tried again."""
CONFLICT = 409
REFUSED = (400, 403, 422)
"""HTTP statuses for objects that are invalid or that the operator may not write."""

_log = logging.getLogger(__name__)


CONTESTED = 3
"""Times in a row that the same object must be applied again until that is taken for a contest."""
CONTEST = RetryPolicy(30.0, 1800.0)
"""Pauses of a contest."""
CONTEST_SECONDS = 600.0
"""After which a change by somebody else has nothing to do with the one before."""


@dataclass(frozen=True, slots=True)
class _Applied:
    of: Key
    version: str
    times: int
    """How often it was applied in a row without being another one."""
    time: float


class IncompleteError(Exception):
    """Part of a plan could not be carried out; the rest was.

    Parameters
    ----------
    causes : sequence of Exception
        What went wrong, in the plan's order.
    """

    def __init__(self, causes: Sequence[Exception]) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = tuple(causes)

    @property
    def retry_after(self) -> float:
        """Seconds that the API server asks to wait."""
        return max((cause.retry_after for cause in self.causes if isinstance(cause, ApiError)), default=0.0)


@dataclass(eq=False, kw_only=True)
class Reconciler:
    """Brings federations into the state that their objects describe."""

    api: KubeClient
    """Writes."""
    cache: Cache
    """Knows what is there."""
    facts: SecretFacts
    """Knows what is in the Secrets."""
    identity: Identity
    """Makes keys and signs."""
    poller: Poller
    """Knows what the servers say."""
    events: EventPoster
    """Posts Events."""
    settings: OperatorSettings
    """The operator's settings."""
    now: Callable[[], float]
    """Seconds since the epoch."""
    turns: Turns
    """Says which federations may have their pods replaced for a new version of the operator."""
    installation: str = ""
    """This installation of the operator, ``namespace/name``; empty outside a cluster."""
    contested: Callable[[str], None] = lambda kind: None
    """Told the kind of an object that somebody else keeps changing back, at every attempt."""
    _repeated: dict[Key, int] = field(default_factory=dict, init=False)
    _applied: dict[Ref, _Applied] = field(default_factory=dict, init=False)
    _not_before: dict[tuple[str, str, str], float] = field(default_factory=dict, init=False)
    _refused: dict[Key, dict[tuple[str, str], str]] = field(default_factory=dict, init=False)
    _undone: dict[Key, AnchorageError] = field(default_factory=dict, init=False)

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one federation; return the seconds until the next reconcile, None if it no longer exists.

        Raises
        ------
        ApiError
            The federation could not be observed.
        IncompleteError
            A part of the plan could not be carried out.
        """
        try:
            observed = self.observe(key) if key in self.cache else None
        except ApiError as error:
            if error.status in REFUSED:
                self.tell_failure(key, error)
            raise
        if observed is None or key not in self.cache:  # a namespace that is dropped meanwhile was observed in part
            self.identity.forget(key)
            self.poller.forget(key)
            self._refused.pop(key, None)
            self._undone.pop(key, None)
            self.turns.note(key, waits=False, answers=True)
            for ref in [ref for ref, last in self._applied.items() if last.of == key]:
                del self._applied[ref]
            return None
        planned = plan(observed, self.settings, self.now())
        if planned.ripe and self.turns.take(key):
            _log.info("replacing the pods by newer ones", extra={"federation": key})
            planned = plan(observed, self.settings, self.now(), upgrade=True)
        self.turns.note(key, waits=planned.waits, answers=isinstance(observed.report, FederationStatus))
        if not self._carry_out(key, observed, planned):
            self._repeated.pop(key, None)
            return planned.requeue_after
        times = self._repeated[key] = self._repeated.get(key, 0) + 1
        return RetryPolicy(SOON_SECONDS, planned.requeue_after).pause(times)

    def tell_failure(self, key: Key, error: Exception) -> None:
        """Let users see that a federation could not be reconciled; where that cannot be written either, the log has it."""
        try:
            tell_failed_reconcile(self.api, self.cache, self.events, key, error, self.now())
        except ApiError as unwritten:
            _log.warning("cannot write a condition", extra={"federation": key, "error": str(unwritten)})
        except Exception:  # noqa: BLE001 logged; what is wrong with the federation may be its status
            _log.exception("internal error of the operator", extra={"federation": key})

    def observe(self, key: Key) -> Observed:
        """Gather the observed state of a federation.

        Raises
        ------
        ApiError
            A Secret cannot be read.
        """
        federation, silos, pods = self.cache.federation(key), self.cache.silos(key), self.cache.pods(key)
        answer = self.poller.latest(key, pods)
        if federation is None:
            return Observed(key.namespace, key.federation, None, silos, self.cache.children(key), pods)
        oldest, uid = _longest_secret_age(answer), federation["metadata"]["uid"]
        invitations = {
            name: self.facts.invitation(key.namespace, name, silo["metadata"]["uid"], oldest)
            for name, silo in silos.items()
        }
        authority = self.facts.authority(key, uid, oldest)
        damage, request = authority.damage if authority is not None else "", None
        if authority is not None and not authority.certificate and not damage:
            if self.settings.authority_issuer is not None:
                request = self.identity.authority_request(key)
            else:
                damage = damage_of(authority_name(key.federation), "ca.pem is empty")
        if damage or request is not None:
            authority = None
        undone, refused = self._undone.get(key), self._refused.get(key, {})
        return Observed(
            namespace=key.namespace,
            name=key.federation,
            federation=federation,
            silos=silos,
            children=self.cache.children(key),
            pods=pods,
            refused_pods=self._refused_pods(key, pods),
            volume_failures=self._volume_failures(pods),
            refused_changes={name: why for (kind, name), why in refused.items() if kind == "StatefulSet"},
            refused_objects={" ".join(ref): why for ref, why in refused.items() if ref[0] != "StatefulSet"},
            claims=self.cache.claims(key.namespace),
            claim_federations=self.cache.claim_federations(key.namespace),
            claim_sizes=self.cache.claim_sizes(key.namespace),
            authority=authority,
            authority_damage=damage,
            authority_request=request,
            certificates_undone=undone.message if undone else "",
            server_certificate=self.facts.server_certificate(key, uid, oldest),
            has_tracking_login=self.identity.has_tracking_login(key, uid, oldest),
            invitations={name: invitation for name, invitation in invitations.items() if invitation is not None},
            report=answer.report if answer else None,
            committed=answer.committed if answer else False,
            members=answer.members if answer else None,
            requests=answer.requests if answer else (),
        )

    def _refused_pods(self, key: Key, pods: Sequence[Json]) -> dict[str, str]:
        """Return why StatefulSets cannot have their pods, by the latest Event of each one's controller."""
        owners = {owner["uid"] for pod in pods for owner in pod["metadata"].get("ownerReferences", ())}
        refused = {}
        for (kind, name), child in self.cache.children(key).items():
            lacks = kind == "StatefulSet" and child["spec"].get("replicas") and child["metadata"]["uid"] not in owners
            if lacks and (why := last_refusal(self.api, child)):
                refused[name] = why
        return refused

    def _volume_failures(self, pods: Sequence[Json]) -> dict[str, str]:
        """Return why volumes of pods that have a node and do not start are not there."""
        late = [pod for pod in pods if awaits_volumes(pod, self.now())]
        failures = {pod["metadata"]["name"]: volume_failure(self.api, pod) for pod in late}
        return {name: why for name, why in failures.items() if why}

    def _carry_out(self, key: Key, observed: Observed, planned: Plan) -> bool:
        """Carry out a plan; return whether to reconcile again at once."""
        causes: list[Exception] = []
        retry = self._carry_out_effects(key, observed.invitations, planned.effects, causes)
        events = list(planned.events)
        refused: dict[tuple[str, str], str] = {}
        known, self._refused[key] = self._refused.get(key, {}), refused
        for body in planned.apply:
            if not self._may_apply(key, observed, body, events):
                continue
            try:
                self._apply(observed, body)
            except ApiError as error:
                causes.append(error)
                ref = body["kind"], body["metadata"]["name"]
                self._applied.pop(Ref(ref[0], key.namespace, ref[1]), None)  # whom could a write contest that failed
                if error.status in REFUSED and observed.federation:
                    refused[ref] = error.message
                if ref in refused and ref not in known and observed.federation:
                    events.append(_refusal_event(observed.federation, body, error))
        for reference in planned.delete:
            try:
                self.api.delete(reference.kind, key.namespace, reference.name)
            except ApiError as error:
                causes.append(error)
        written = self._write_status(key, "Federation", key.federation, planned.federation_status, causes)
        for silo, status in planned.silo_statuses.items():
            version = observed.silos[silo]["metadata"].get("resourceVersion", "")
            written = self._write_status(key, "Silo", silo, status, causes, version) and written
        for event in events if written else ():
            try:
                self.events.post(event)
            except ApiError as error:
                causes.append(error)
        if causes:
            raise IncompleteError(causes)
        return retry

    def _may_apply(self, key: Key, observed: Observed, body: Json, events: list[Event]) -> bool:
        """Return whether to apply an object now: less and less often while somebody else, such as a policy, keeps changing it back."""
        kind, name = body["kind"], body["metadata"]["name"]
        ref, now, live = Ref(kind, key.namespace, name), self.now(), observed.children.get((kind, name))
        last, version, times = self._applied.get(ref), body["metadata"]["annotations"][APPLIED_HASH], 0
        if last is not None and live is not None and last.version == version:
            pause = CONTEST.pause(last.times + 2 - CONTESTED) if last.times + 1 >= CONTESTED else 0.0
            if now < last.time + pause:
                return False
            times = last.times + 1 if now < last.time + pause + CONTEST_SECONDS else 0
        self._applied[ref] = _Applied(key, version, times, now)
        if times >= CONTESTED and observed.federation is not None:
            self.contested(kind)
            where = first_difference({part: value for part, value in body.items() if part != "metadata"}, live)
            what = f"{where or 'metadata'} of {kind} {name} back whenever the operator writes it"
            message = f"{self._rival(live)} changes {what}"
            events.append(Event(involved_object(observed.federation), "Warning", "ApplyContested", message))
        return True

    def _rival(self, live: Json | None) -> str:
        """Say who changes an object back: another installation where that left its name, else somebody."""
        by = (live or {}).get("metadata", {}).get("annotations", {}).get(OPERATED_BY, self.installation)
        if by == self.installation:
            return "somebody"
        namespace, _, name = str(by).partition("/")
        return f"another installation of the operator, {name} in namespace {namespace}, watches this namespace too and"

    def _write_status(
        self, key: Key, kind: str, name: str, status: Json | None, causes: list[Exception], version: str = ""
    ) -> bool:
        """Write a status if there is one to write; return whether that succeeded.

        With a resourceVersion it is written over that version only, so that a person's approval that the cache lacks is kept.
        """
        if status is None:
            return True
        metadata = {"name": name, "namespace": key.namespace} | ({"resourceVersion": version} if version else {})
        try:
            self.cache.add_answer(self.api.apply_status(kube_object(kind, metadata, status=status)))
        except ApiError as error:
            if error.status == 404:
                self.cache.remove(Ref(kind, key.namespace, name))
                return False
            if error.status == CONFLICT and (current := self.api.get(kind, key.namespace, name)) is not None:
                self.cache.renew(current)  # the cache may be behind, or ahead of restored data
            causes.append(error)
            return False
        return True

    def _apply(self, observed: Observed, body: Json) -> None:
        """Apply a child object, unless somebody else created an object with its name."""
        kind, name = body["kind"], body["metadata"]["name"]
        if (kind, name) not in observed.children:
            live = self.api.get(kind, observed.namespace, name)
            if live and live["metadata"].get("labels", {}).get(MANAGED_BY_LABEL) != FIELD_MANAGER:
                raise ApiError(
                    403,
                    "NameTaken",
                    f"{kind} {name} already exists and was not created by the operator; rename one of them",
                )
        if self.installation:  # not a part of what is compared: two installations of one version need not contest
            annotations = {**body["metadata"]["annotations"], OPERATED_BY: self.installation}
            body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        self.cache.add_answer(self.api.apply(body))

    def _carry_out_effects(
        self, key: Key, invitations: Mapping[str, Invitation], effects: Sequence[Effect], causes: list[Exception]
    ) -> bool:
        """Carry out effects; return whether to reconcile again at once."""
        retry = False
        answers: list[dict[str, str]] = []
        self._undone.pop(key, None)
        for effect in effects:
            try:
                match effect:
                    case Sign():
                        answers.append(self._sign(key, effect, invitations.get(effect.silo)))
                    case Refuse():
                        answers.append({"id": effect.request, "code": effect.code, "message": effect.message})
                    case PutMembers():
                        self.poller.put_members(key, effect.members, effect.generation)
                        continue
                    case GrowClaim():
                        self._grow(key, effect)
                        continue
                    case _:
                        _log.info("making", extra={"federation": key, "what": type(effect).__name__})
                        self.identity.carry_out(key, effect)
                retry = retry or not isinstance(effect, Refuse)
            except InvitationChangedError:
                retry = True
            except AnchorageError as error:
                causes.append(error)
                if not isinstance(effect, Sign | PutMembers | GrowClaim):
                    self._undone[key] = error
        if answers:
            try:
                self.poller.put_answers(key, answers)
            except AnchorageError as error:
                causes.append(error)
        return retry

    def _grow(self, key: Key, effect: GrowClaim) -> None:
        """Ask for a larger volume; a refusal is told, and hinders nothing else."""
        asked = (key.namespace, effect.name, effect.size)
        if self.now() < self._not_before.get(asked, 0.0):
            return
        request = {"spec": {"resources": {"requests": {"storage": effect.size}}}}
        try:
            self.cache.add_answer(self.api.patch("PersistentVolumeClaim", key.namespace, effect.name, request))
            message = f"the volume claim {effect.name} requests {effect.size} now"
            self.events.post(Event(effect.about, "Normal", "VolumeGrows", message))
        except ApiError as error:
            if error.status not in REFUSED:
                raise
            self._not_before[asked] = self.now() + GROWTH_SECONDS
            message = f"the volume claim {effect.name} cannot grow to {effect.size}: {error.message}"
            self.events.post(Event(effect.about, "Warning", "VolumeNotGrown", message))

    def _sign(self, key: Key, effect: Sign, expected: Invitation | None) -> dict[str, str]:
        try:
            certificate = self.identity.sign(key, effect, expected)
        except ApiError:
            raise
        except AnchorageError as error:
            if error.failure.reason == "AuthorityUnusable":
                raise
            return {"id": effect.request, "code": error.code, "message": error.message}
        _log.info("signed a certificate", extra={"federation": key, "silo": effect.silo, "key": effect.key})
        return {"id": effect.request, "certificate": certificate.decode()}


def _longest_secret_age(answer: Answer | None) -> float:
    if answer is None or answer.members is None:
        return SECRETS_WHEN_NOT_SECONDS
    return SECRETS_WHEN_ASKED_SECONDS if answer.requests else SECRETS_WHEN_WELL_SECONDS


def _refusal_event(federation: Json, body: Json, error: ApiError) -> Event:
    message = f"{body['kind']} {body['metadata']['name']} was refused: {error.message}"
    return Event(involved_object(federation), "Warning", "ApplyRefused", message)

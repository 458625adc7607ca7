"""Plans the changes for one federation from its observed state. Pure: no clock, no network, no keys."""

from collections.abc import Iterator, Set

from anchorage.api.federation import Silo
from anchorage.transport.kube.resources import Json
from anchorage_operator.build_agent import agent_objects
from anchorage_operator.build_server import server_objects
from anchorage_operator.certificates import certificate_effects, certificate_times
from anchorage_operator.conditions import Findings
from anchorage_operator.drift import needs_apply, with_applied_hash
from anchorage_operator.federation_status import federation_findings
from anchorage_operator.in_use import InUse
from anchorage_operator.membership import is_managed, leftovers_of_lost_authority, membership_effects
from anchorage_operator.names import AUTHORITY_HASH, agent_name, public_name
from anchorage_operator.observed import CHILD_KINDS, Observed
from anchorage_operator.planned import Event, Plan, Reference
from anchorage_operator.report import federation_status, has_news, is_silo_write_due, is_write_due
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.silo_status import silo_status
from anchorage_operator.situation import RESULTS_AFTER_SECONDS, Situation
from anchorage_operator.tracking import tracking_effects
from anchorage_operator.transitions import federation_events, silo_events
from anchorage_operator.upgrades import is_between_rounds, is_held
from anchorage_operator.volumes import volume_effects

LEAST_WAIT_SECONDS = 1.0
"""Shortest wait until the next look."""


def plan(observed: Observed, settings: OperatorSettings, now: float, *, upgrade: bool = False) -> Plan:
    """Return the plan for one federation.

    Parameters
    ----------
    observed : Observed
        Everything that is known of it.
    settings : OperatorSettings
        The operator's settings.
    now : float
        Seconds since the epoch.
    upgrade : bool
        Whether it is the federation's turn to have its pods replaced by those of the operator's version.
    """
    federation = observed.federation
    if federation is not None and federation["metadata"].get("deletionTimestamp"):
        return Plan(requeue_after=settings.resync_seconds)
    situation = Situation(observed, settings, now)
    dead = tuple(leftovers_of_lost_authority(situation))
    gone = {(reference.kind, reference.name) for reference in dead}
    wanted = {_key(built): with_applied_hash(built) for built in _desired_objects(situation)}
    apply = [
        built for key, built in wanted.items() if key not in gone and needs_apply(built, observed.children.get(key))
    ]
    later = [] if upgrade else [each for each in apply if is_held(situation, each, observed.children.get(_key(each)))]
    apply = [each for each in apply if each not in later]
    delete = (*dead, *_surplus_objects(situation, wanted.keys()))
    if federation is None:
        statuses, news = _silo_statuses(situation, {})
        return Plan((), tuple(apply), delete, None, statuses, news, settings.resync_seconds)
    findings = federation_findings(situation)
    status, before = federation_status(situation, findings), situation.status
    write = is_write_due(before, status, situation)
    statuses, news = _silo_statuses(situation, findings)
    return Plan(
        effects=(
            *certificate_effects(situation),
            *tracking_effects(situation),
            *membership_effects(situation),
            *volume_effects(situation),
        ),
        apply=tuple(apply),
        delete=delete,
        federation_status=status if write else None,
        silo_statuses=statuses,
        waits=bool(later),
        ripe=bool(later) and is_between_rounds(situation),
        events=(*(federation_events(federation, before, status) if write else ()), *news),
        requeue_after=_next_look(situation, has_news=not write and has_news(before, status)),
    )


def _desired_objects(situation: Situation) -> Iterator[Json]:
    """Yield all desired objects; none if no spec was ever accepted."""
    observed, in_use = situation.observed, situation.in_use
    if observed.federation is not None and (in_use is None or observed.authority is None):
        return
    if in_use is not None and observed.authority is not None:
        yield from server_objects(situation, in_use, observed.authority.certificate)
    for name, silo in situation.silos_in_use.items():
        yield from _agent(situation, name, silo)


def _agent(situation: Situation, name: str, silo: InUse[Silo]) -> Iterator[Json]:
    """Yield the objects of a managed silo; if the Federation was deleted, an existing agent is scaled to zero."""
    observed, managed = situation.observed, silo.typed.spec.managed
    child = observed.children.get(("StatefulSet", agent_name(name)))
    if managed is None or (observed.federation is None and child is None):
        return
    known: Json = child["metadata"].get("annotations", {}) if child is not None else {}
    authority = observed.authority.origin if observed.authority else str(known.get(AUTHORITY_HASH, ""))
    invitation = observed.invitations.get(name)
    with_pod = child is not None or (invitation is not None and invitation.has_token)
    yield from agent_objects(situation, silo, managed, authority, with_pod=with_pod)


def _surplus_objects(situation: Situation, wanted: Set[tuple[str, str]]) -> Iterator[Reference]:
    """Yield children that are no longer desired while their owner exists; others are deleted with their owner."""
    children = situation.observed.children
    name = situation.observed.name
    public = ("Service", public_name(name))
    if situation.in_use is not None and wanted and public in children and public not in wanted:
        yield Reference(CHILD_KINDS["Service"], *public)
    for name in situation.verdict.silos:
        if not is_managed(situation.silos[name]):
            for kind, api_version in CHILD_KINDS.items():
                if (kind, agent_name(name)) in children:
                    yield Reference(api_version, kind, agent_name(name))


def _silo_statuses(situation: Situation, findings: Findings) -> tuple[dict[str, Json], tuple[Event, ...]]:
    """Return the silo statuses to write, and their Events."""
    statuses: dict[str, Json] = {}
    events: list[Event] = []
    for name, silo in situation.silos.items():
        before: Json = silo.get("status") or {}
        after = silo_status(situation, name, findings)
        if is_silo_write_due(before, after, situation):
            statuses[name] = after
            events += silo_events(silo, before, after)
    return statuses, tuple(events)


def _next_look(situation: Situation, has_news: bool) -> float:
    """Return the seconds until a change that triggers no reconcile by itself; `has_news` means that progress was not written yet."""
    observed, settings, now = situation.observed, situation.settings, situation.now
    moments = [*certificate_times(situation)]
    for invitation in observed.invitations.values():
        moments += [invitation.not_after] if invitation.key else [invitation.expires]
    if situation.finished and not situation.results_only:
        moments.append(now + RESULTS_AFTER_SECONDS)
    waits = [moment - now for moment in moments if moment > now]
    unsettled = (bool(observed.pods) and situation.report is None) or observed.authority_request is not None
    waits.append(settings.poll_seconds if unsettled or has_news else settings.resync_seconds)
    return max(min(waits), LEAST_WAIT_SECONDS)


def _key(built: Json) -> tuple[str, str]:
    return built["kind"], built["metadata"]["name"]

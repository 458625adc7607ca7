"""When certificates are made and renewed, under which names, and where hospitals are told to go."""

from dataclasses import replace
from typing import Any

import pytest
from plan_world import CA, DAY, NOW, SETTINGS, YEAR, effects_of, federation, managed, said, settled, world

from anchorage.api.federation import FederationSpec
from anchorage_operator.addresses import certificate_names, endpoints
from anchorage_operator.observed import CertificateFacts, Observed
from anchorage_operator.plan import plan
from anchorage_operator.planned import MakeServerCertificate
from anchorage_operator.situation import Situation

INSIDE = {
    "derm-server",
    "derm-server.study",
    "derm-server.study.svc",
    "derm-server.study.svc.cluster.local",
    "localhost",
    "127.0.0.1",
}


def asked(**server: Any) -> tuple[Observed, FederationSpec]:
    observed = settled(Observed("study", "derm", federation(server=server)))[0]
    spec = Situation(observed, SETTINGS, NOW).spec
    assert spec is not None
    return observed, spec


@pytest.mark.parametrize(("age", "renewed"), [(0.66, False), (0.67, True), (1.1, True)])
def test_the_server_s_certificate_is_renewed_after_two_thirds_of_its_life(age: float, renewed: bool) -> None:
    observed = world(managed("a"))
    now = NOW + age * YEAR
    effects = list(effects_of(plan(observed, SETTINGS, now), MakeServerCertificate))
    assert bool(effects) is renewed


def test_it_is_looked_at_again_in_time() -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b"))
    planned = plan(observed, SETTINGS, NOW + YEAR * 2 / 3 - 12)
    assert planned.requeue_after == pytest.approx(12)


def test_it_is_made_anew_for_another_authority() -> None:
    observed = world(managed("a"))
    names = observed.server_certificate.names if observed.server_certificate else ()
    other = CertificateFacts(NOW, NOW + YEAR, names, "of another authority")
    (make,) = effects_of(plan(replace(observed, server_certificate=other), SETTINGS, NOW), MakeServerCertificate)
    assert (make.owner["kind"], set(make.names)) == ("Federation", INSIDE)


@pytest.mark.parametrize(
    ("server", "more"),
    [
        ({}, set()),
        ({"names": ["10.1.2.3", "fed.hospital.org"]}, {"10.1.2.3", "fed.hospital.org"}),
        ({"address": "fed.example.org:443"}, {"fed.example.org"}),
        ({"address": "[fd00::1]:443", "enrolmentAddress": "in.example.org:444"}, {"fd00::1", "in.example.org"}),
    ],
)
def test_names(server: dict[str, Any], more: set[str]) -> None:
    observed, spec = asked(**server)
    assert set(certificate_names(observed, spec, SETTINGS)) == INSIDE | more
    assert observed.server_certificate is not None
    assert set(observed.server_certificate.names) == INSIDE | more


def test_another_name_makes_another_certificate() -> None:
    observed, _ = asked()
    renamed = replace(observed, federation=federation(server={"names": ["fed.example.org"]}))
    (make,) = effects_of(plan(renamed, SETTINGS, NOW), MakeServerCertificate)
    assert set(make.names) == INSIDE | {"fed.example.org"}


def test_a_load_balancer_s_address_is_a_name_and_the_endpoint() -> None:
    observed, spec = asked(service={"type": "LoadBalancer"})
    service = {**observed.children["Service", "derm-server-public"]}
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example.org"}]}}
    observed = replace(observed, children={**observed.children, ("Service", "derm-server-public"): service})
    assert set(certificate_names(observed, spec, SETTINGS)) == INSIDE | {"192.0.2.7", "lb.example.org"}
    assert endpoints(observed, spec, SETTINGS) == ("192.0.2.7:8443", "192.0.2.7:8444")
    after = settled(observed)[0]
    assert after.federation is not None
    assert after.federation["status"]["endpoint"] == "192.0.2.7:8443"
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "2001:db8::7"}]}}
    observed = replace(observed, children={**observed.children, ("Service", "derm-server-public"): service})
    assert endpoints(observed, spec, SETTINGS) == ("[2001:db8::7]:8443", "[2001:db8::7]:8444")
    assert "2001:db8::7" in certificate_names(observed, spec, SETTINGS)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({}, ("derm-server.study.svc.cluster.local:8443", "derm-server.study.svc.cluster.local:8444")),
        ({"address": "fed.example.org:443"}, ("fed.example.org:443", "fed.example.org:8444")),
        (
            {"address": "node:30443", "service": {"type": "NodePort", "nodePorts": {"enrolment": 30444}}},
            ("node:30443", "node:30444"),
        ),
        (
            {"address": "fed.example.org:443", "enrolmentAddress": "in.example.org:443"},
            ("fed.example.org:443", "in.example.org:443"),
        ),
    ],
)
def test_endpoints(server: dict[str, Any], expected: tuple[str, str]) -> None:
    observed, spec = asked(**server)
    assert endpoints(observed, spec, SETTINGS) == expected


def test_renewal_is_told_once() -> None:
    observed = world(managed("a"))
    now = NOW + YEAR * 0.7
    renewed, plans = settled(observed, now)
    reasons = [event.reason for planned in plans for event in planned.events]
    assert reasons.count("CertificateRotated") == 1
    assert renewed.server_certificate == CertificateFacts(now, now + YEAR, tuple(sorted(INSIDE)), CA)


def test_the_authority_s_end_is_told_in_time() -> None:
    observed = world(managed("a"))
    assert observed.authority is not None
    ending = replace(observed, authority=replace(observed.authority, not_after=NOW + 100 * DAY))
    after, plans = settled(ending, NOW + 11 * DAY)
    assert [e.reason for planned in plans for e in planned.events if e.type == "Warning"] == ["CertificateExpiring"]
    assert plan(after, SETTINGS, NOW + 11 * DAY).idle

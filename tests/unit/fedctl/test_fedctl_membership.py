"""Inviting, approving, denying and removing hospitals, over an API server in this process."""

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fake_api.server import FakeApi
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, cluster
from anchorage.transport.pki import Authority, Denials, SiloKeys, key_fingerprint
from fedctl.invitation import parse_span
from fedctl.main import app

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def fake(cluster_api: FakeApi) -> FakeApi:
    cluster_api.put(
        "federations", {"metadata": {"name": "derm"}, "spec": {"server": {"address": "fed.example.org:443"}}}
    )
    cluster_api.put("configmaps", {"metadata": {"name": "derm-authority"}, "data": {"ca.pem": PEM}})
    return cluster_api


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result) -> AnchorageError:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception


def silo(name: str = "a", federation: str = "derm", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"federation": federation, "labels": "None", **spec}}


def secret(fake: FakeApi, name: str = "a") -> dict[str, str]:
    secret = fake.find("secrets", f"{name}-enrolment")
    assert secret is not None
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def test_an_invitation_is_on_stdout_and_only_its_tokens_hash_in_the_cluster(fake: FakeApi) -> None:
    result = fedctl("silo", "invite", "derm", "a", "--labels", "All", "--valid", "12h")
    values = yaml.safe_load(result.stdout)["enrolment"]
    assert list(values) == ["federation", "silo", "labels", "server", "enrolment", "authority", "token"]
    assert {key: values[key] for key in ("federation", "silo", "labels", "server", "enrolment", "authority")} == {
        "federation": "derm",
        "silo": "a",
        "labels": "All",
        "server": "fed.example.org:443",
        "enrolment": "fed.example.org:8444",
        "authority": PEM,
    }
    assert "|" in result.stdout and PEM.splitlines()[1] in result.stdout  # the certificate is written as a block
    made = secret(fake)
    assert made.keys() == {"hash", "expires"} and made["hash"] == hashlib.sha256(values["token"].encode()).hexdigest()
    remaining = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
    assert timedelta(hours=11, minutes=59) < remaining <= timedelta(hours=12)
    assert not any(values["token"] in json.dumps(asked.body) for asked in fake.writes())
    member = fake.find("silos", "a")
    assert member is not None and member["spec"] == {"federation": "derm", "labels": "All"}
    owner = fake.find("secrets", "a-enrolment")
    assert owner is not None and owner["metadata"]["ownerReferences"][0]["uid"] == member["metadata"]["uid"]
    assert owner["metadata"]["labels"] == {"anchorage.dev/federation": "derm", "anchorage.dev/silo": "a"}
    assert values["token"] not in result.stderr and "fedctl silo approve derm a -n anchorage" in result.stderr


@pytest.mark.parametrize("silo", ["no", "y", "1e3", "08", "0o17", "2026"])
def test_helm_reads_every_silo_s_name_as_a_text(fake: FakeApi, silo: str) -> None:
    written = fedctl("silo", "invite", "derm", silo).stdout
    assert f"silo: '{silo}'\n" in written and yaml.safe_load(written)["enrolment"]["silo"] == silo


def test_a_second_invitation_replaces_the_first_until_a_key_has_used_it(fake: FakeApi) -> None:
    first = yaml.safe_load(fedctl("silo", "invite", "derm", "a").stdout)["enrolment"]["token"]
    fedctl("silo", "invite", "derm", "a")
    assert secret(fake)["hash"] != hashlib.sha256(first.encode()).hexdigest()
    fake.objects["secrets", "anchorage", "a-enrolment"]["data"].update(key=base64.b64encode(b"ab" * 32).decode())
    fedctl("silo", "approve", "derm", "a")
    assert refused(fedctl("silo", "invite", "derm", "a")).failure is cluster.SILO_TAKEN
    assert secret(fake)["key"] == "ab" * 32
    fedctl("silo", "invite", "derm", "a", "--replace")
    member = fake.find("silos", "a")
    assert "key" not in secret(fake) and member is not None and member["status"]["conditions"] == []


def test_a_secret_of_somebody_else_is_not_written_over(fake: FakeApi) -> None:
    fedctl("silo", "invite", "derm", "a")
    theirs = fake.objects["secrets", "anchorage", "a-enrolment"]
    theirs["metadata"]["labels"], before = {}, dict(theirs["data"])
    assert "is of no federation" in refused(fedctl("silo", "invite", "derm", "a", "--replace")).message
    assert fake.objects["secrets", "anchorage", "a-enrolment"]["data"] == before


@pytest.mark.parametrize(
    ("arguments", "server", "enrolment"),
    [
        (["--address", "10.0.0.7:30443"], "10.0.0.7:30443", "10.0.0.7:8444"),
        (["--address", "a.org:1", "--enrolment-address", "b.org:2"], "a.org:1", "b.org:2"),
        (["--address", "[fd00::1]:8443"], "[fd00::1]:8443", "[fd00::1]:8444"),
        ([], "derm-server.anchorage.svc:8443", "derm-server.anchorage.svc:30444"),
    ],
)
def test_addresses(fake: FakeApi, arguments: list[str], server: str, enrolment: str) -> None:
    fake.put("federations", {"metadata": {"name": "derm"}, "spec": {}, "status": {"endpoint": server}})
    if not arguments:
        fake.objects["federations", "anchorage", "derm"]["status"]["enrolmentEndpoint"] = enrolment
    result = fedctl("silo", "invite", "derm", "a", *arguments)
    values = yaml.safe_load(result.stdout)["enrolment"]
    assert (values["server"], values["enrolment"]) == (server, enrolment)
    assert ("warning" in result.stderr) == (not arguments)


def test_what_an_invitation_needs_is_told_before_anything_is_written(fake: FakeApi) -> None:
    fake.put("silos", silo("b", "other"))
    fake.put("silos", silo("c", managed={}))
    fake.put("silos", silo("d", labels="All"))
    for name, failure in (("b", "SiloTaken"), ("c", "SiloNotRemote")):
        assert refused(fedctl("silo", "invite", "derm", name)).failure.reason == failure
    assert refused(fedctl("silo", "invite", "derm", "d", "--labels", "None")).failure is cluster.SILO_TAKEN
    assert refused(fedctl("silo", "invite", "nowhere", "a")).failure is cluster.NO_SUCH_FEDERATION
    del fake.objects["configmaps", "anchorage", "derm-authority"]
    assert refused(fedctl("silo", "invite", "derm", "a")).failure is cluster.AUTHORITY_NOT_READY
    fake.put("federations", {"metadata": {"name": "derm"}, "spec": {}})
    assert refused(fedctl("silo", "invite", "derm", "a")).failure is cluster.ADDRESS_UNKNOWN
    assert fedctl("silo", "invite", "derm", "a", "--address", "no-port").exit_code == 2
    assert fake.writes() == []


def test_a_silo_that_is_there_keeps_its_labels(fake: FakeApi) -> None:
    fake.put("silos", silo("d", labels="Partial"))
    assert yaml.safe_load(fedctl("silo", "invite", "derm", "d").stdout)["enrolment"]["labels"] == "Partial"


def test_a_decision_is_one_condition_and_shows_the_key(fake: FakeApi) -> None:
    key = "0123456789abcdef" * 4
    status = {"certificate": {"key": key}, "conditions": []}
    fake.put("silos", {**silo(), "status": status})
    result = fedctl("silo", "approve", "derm", "a")
    assert "a approved in derm" in result.output and key in result.output
    asked = fake.writes()[-1]
    assert (asked.method, asked.path) == ("PATCH", "/apis/anchorage.dev/v1alpha1/namespaces/anchorage/silos/a/status")
    assert asked.query == {"fieldManager": "fedctl", "force": "true"} and asked.body["status"].keys() == {"conditions"}
    (approved,) = asked.body["status"]["conditions"]
    assert (approved["type"], approved["status"], approved["reason"]) == ("Approved", "True", "ApprovedByUser")
    time = approved["lastTransitionTime"]
    facts = json.loads(fedctl("silo", "approve", "derm", "a", "-o", "json").output)
    assert facts == {"federation": "derm", "silo": "a", "approved": True, "key": key}
    assert fake.writes()[-1].body["status"]["conditions"][0]["lastTransitionTime"] == time
    fedctl("silo", "deny", "derm", "a")
    denied = fake.writes()[-1].body["status"]["conditions"][0]
    assert (denied["status"], denied["message"]) == ("False", "by fedctl silo deny")
    fedctl("silo", "deny", "derm", "a", "--reason", "key lost\n" + "x" * 2000)
    message = fake.writes()[-1].body["status"]["conditions"][0]["message"]
    assert message.startswith("by fedctl silo deny: key lost xx") and len(message) == 1024


def test_the_key_that_asks_is_shown_before_it_has_a_certificate(fake: FakeApi) -> None:
    key = "fe" * 32
    asks = {
        "type": "Enrolled",
        "status": "False",
        "reason": "PendingApproval",
        "message": f"the silo requests enrolment with key {key} and waits for `fedctl silo approve`",
        "lastTransitionTime": "2026-11-21T14:00:00Z",
    }
    fake.put("silos", {**silo(), "status": {"conditions": [asks]}})
    assert f"key: sha256 {key}" in fedctl("silo", "approve", "derm", "a").output
    fake.put("silos", silo("b"))
    assert "none has asked yet" in fedctl("silo", "approve", "derm", "b").output


def test_nobody_decides_about_a_managed_or_a_missing_silo(fake: FakeApi) -> None:
    fake.put("silos", silo("c", managed={}))
    fake.put("silos", silo("b", "other"))
    assert refused(fedctl("silo", "approve", "derm", "c")).failure is cluster.SILO_NOT_REMOTE
    for name in ("b", "nobody"):
        assert refused(fedctl("silo", "deny", "derm", name)).failure is cluster.NO_SUCH_SILO


def test_a_removed_silo_leaves_nothing(fake: FakeApi) -> None:
    fedctl("silo", "invite", "derm", "a")
    assert "removed" in fedctl("silo", "remove", "derm", "a").output
    assert fake.find("silos", "a") is None and fake.find("secrets", "a-enrolment") is None


def test_a_local_run_needs_none_of_it(fake: FakeApi, tmp_path: Path) -> None:
    folder = tmp_path / ".anchorage" / "derm"
    folder.mkdir(parents=True)
    (folder / "federation.yaml").write_text("")
    for command in ("invite", "remove"):
        error = refused(fedctl("silo", command, "derm", "a"))
        assert error.failure is cluster.LOCAL_RUN and "without invitation or approval" in error.message
    assert fedctl("silo", "invite", "derm", "a", "-n", "anchorage").exit_code == 0


def test_a_silo_of_a_local_run_is_denied_and_approved(fake: FakeApi, tmp_path: Path) -> None:
    folder = tmp_path / ".anchorage" / "derm"
    (folder / "authority").mkdir(parents=True)
    (folder / "federation.yaml").write_text(
        "kind: Silo\nmetadata: {name: a}\n---\nkind: Federation\nmetadata: {name: derm}\n"
    )
    denials = Denials(folder / "authority")
    assert "a denied in derm" in fedctl("silo", "deny", "derm", "a", "--reason", "key lost").output and "a" in denials
    assert refused(fedctl("silo", "deny", "derm", "../ca.pem")).failure is cluster.NO_SUCH_SILO
    answer = json.loads(fedctl("silo", "approve", "derm", "a", "-o", "json").output)
    assert answer == {"federation": "derm", "silo": "a", "approved": True} and "a" not in denials


def test_the_authority_of_a_local_run_is_replaced_when_every_silo_has_a_certificate_of_the_new_one(
    fake: FakeApi, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    documents = [silo(name) | {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Silo"} for name in ("a", "b", "c")]
    (run / "federation.yaml").write_text(yaml.safe_dump_all(documents))
    old = Authority.create(run / "authority", "derm")
    where = ("--workdir", run)
    assert "introduce a new one first" in refused(fedctl("authority", "finish", "derm", *where)).message
    assert "SHA-256 of its key" in fedctl("authority", "replace", "derm", *where).output
    new = old.current()
    assert new.certificate_pem != old.certificate_pem
    assert refused(fedctl("authority", "replace", "derm", *where)).code == "ANC-2006"
    keys, signed = SiloKeys(old.folder), key_fingerprint(new.certificate_pem)
    keys.offer("a", "1" * 64, signed)
    Denials(old.folder).deny("c")
    error = refused(fedctl("authority", "finish", "derm", *where))
    assert error.code == "ANC-2013" and error.message.startswith("b of ")
    keys.offer("b", "2" * 64, signed)
    assert "trusted no more" in fedctl("authority", "finish", "derm", *where).output
    assert old.certificate_path.read_bytes() == new.certificate_pem


def test_in_a_cluster_the_operator_is_asked_for_a_new_authority_by_an_annotation(fake: FakeApi) -> None:
    def annotations() -> dict[str, str]:
        federation_object = fake.find("federations", "derm")
        assert federation_object is not None
        return dict(federation_object["metadata"].get("annotations", {}))

    assert "nobody has asked" in refused(fedctl("authority", "finish", "derm")).message
    assert "fedctl status derm" in fedctl("authority", "replace", "derm").stdout
    assert annotations() == {"anchorage.dev/new-authority": "yes"}
    assert "fedctl status derm" in fedctl("authority", "finish", "derm").stdout
    assert annotations() == {}
    assert refused(fedctl("authority", "replace", "other")).failure is cluster.NO_SUCH_FEDERATION


def test_a_right_that_is_missing_is_named(fake: FakeApi) -> None:
    fake.denied = {("create", "secrets")}
    error = refused(fedctl("silo", "invite", "derm", "a"))
    assert error.failure is cluster.CLUSTER_FORBIDDEN and "may not create secrets 'a-enrolment'" in error.message
    fake.denied = {("patch", "silos/status")}
    assert "patch silos.anchorage.dev/status 'a'" in refused(fedctl("silo", "approve", "derm", "a")).message


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("12h", 43_200), ("7d", 604_800)])
def test_spans(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "0d", "7w", "-1d", "9999d"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_span(text)

"""What the doctor finds in clusters and on the way to a server."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from fake_api.server import FakeApi
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, cluster
from anchorage.transport.pki import Authority
from anchorage.transport.pki.identity import server_uri
from anchorage.transport.pki.keys import SigningRequest, new_key
from fedctl.address_checks import Expectation, address_checks, certificate_check, read_expectation
from fedctl.checkup import Check, Level
from fedctl.cluster_checks import clock_check, nodes_checks, storage_check, version_check
from fedctl.main import app
from makers.crd.definitions import RESOURCES, definition

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SLICE = {
    "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "kube-dns"}},
    "endpoints": [{"conditions": {"ready": True}}],
}


@pytest.fixture
def fake(cluster_api: FakeApi) -> FakeApi:
    for resource in RESOURCES:
        cluster_api.put("customresourcedefinitions", definition(resource), "")
    cluster_api.put(
        "nodes", {"metadata": {"name": "n"}, "status": {**READY, "allocatable": {"nvidia.com/gpu": "2"}}}, ""
    )
    annotation = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster_api.put("storageclasses", {"metadata": {"name": "fast", "annotations": annotation}}, "")
    cluster_api.put("endpointslices", SLICE, "kube-system")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster_api.put("namespaces", {"metadata": {"name": "anchorage", "labels": labels}}, "")
    return cluster_api


def doctor(*arguments: object) -> tuple[dict[str, dict[str, str]], Result]:
    result = CliRunner().invoke(app, ["doctor", "-o", "json", *map(str, arguments)])
    checks = json.loads(result.stdout)
    return {check["name"]: check for check in checks}, result


def levels(checks: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: check["level"] for name, check in checks.items()}


def test_a_cluster_that_has_everything(fake: FakeApi) -> None:
    checks, result = doctor()
    assert result.exception is None and set(levels(checks).values()) == {"OK"}, checks
    assert list(checks) == [
        "context",
        "version",
        "clock",
        "CRDs",
        "nodes",
        "GPU",
        "storage class",
        "DNS",
        "namespace",
        "rights",
    ]
    assert "CRDs" not in doctor("--for", "hospital")[0]
    assert fake.writes() == []
    assert "2 nvidia.com/gpu" in CliRunner().invoke(app, ["doctor"]).output


def test_a_bare_cluster_can_be_installed_on(fake: FakeApi) -> None:
    nodes = {key: value for key, value in fake.objects.items() if key[0] == "nodes"}
    fake.store.objects = nodes
    nodes["nodes", "", "n"]["status"]["allocatable"] = {}
    checks, result = doctor()
    assert result.exception is None
    warned = {name for name, level in levels(checks).items() if level == "WARN"}
    assert warned == {"GPU", "storage class", "DNS", "namespace"}
    assert all(checks[name]["remedy"] for name in warned) and "not installed yet" in checks["CRDs"]["found"]


def test_what_keeps_an_install_back(fake: FakeApi) -> None:
    fake.version, fake.seconds_ahead = "v1.28.3", 900
    fake.objects["nodes", "", "n"]["status"]["conditions"][0]["status"] = "False"
    fake.denied = {("create", "secrets"), ("create", "customresourcedefinitions")}
    checks, result = doctor()
    failed = {name for name, level in levels(checks).items() if level == "FAIL"}
    assert failed == {"version", "clock", "nodes", "rights"}
    rights = checks["rights"]["found"]
    assert "create secrets" in rights and "create customresourcedefinitions.apiextensions.k8s.io" in rights
    assert isinstance(result.exception, AnchorageError) and result.exception.failure is cluster.CHECKS_FAILED
    assert "4 of 10" in result.exception.message


def test_what_the_user_may_not_look_at_is_a_warning(fake: FakeApi) -> None:
    fake.denied = {("list", "nodes"), ("get", "customresourcedefinitions")}
    checks, _ = doctor()
    assert levels(checks)["nodes"] == levels(checks)["CRDs"] == "WARN" and "GPU" not in checks


def test_definitions_of_another_version_are_told(fake: FakeApi) -> None:
    name = RESOURCES[0].name
    schema = fake.objects["customresourcedefinitions", "", name]["spec"]["versions"][0]["schema"]
    schema["openAPIV3Schema"] = {"type": "object"}
    check = doctor()[0]["CRDs"]
    assert check["level"] == "WARN" and name in check["found"] and RESOURCES[1].name not in check["found"]


def test_no_cluster_is_a_finding_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    checks, _ = doctor()
    assert levels(checks) == {"context": "FAIL"} and "KUBECONFIG" in checks["context"]["remedy"]


@pytest.mark.parametrize(
    ("version", "level"), [("v1.28.9", "FAIL"), ("v1.30.1", "WARN"), ("v1.31.0+k3s1", "OK"), ("?", "FAIL")]
)
def test_versions(version: str, level: str) -> None:
    assert version_check(version).level == level


@pytest.mark.parametrize(
    ("ahead", "uncertain", "level"),
    [(0.9, 1, "OK"), (-60, 1, "WARN"), (300, 1, "FAIL"), (-300, 1, "FAIL"), (-60, 40, "OK"), (300, 100, "WARN")],
)
def test_clocks(ahead: float, uncertain: float, level: str) -> None:
    assert clock_check(ahead, uncertain).level == level


def test_nodes_that_take_no_pods_do_not_count() -> None:
    idle = {"status": {**READY, "allocatable": {"nvidia.com/gpu": "4"}}, "spec": {"unschedulable": True}}
    assert [check.level for check in nodes_checks([idle])] == [Level.FAIL, Level.WARN]


def test_storage_classes_are_listed_where_none_is_the_default() -> None:
    assert "slow" in storage_check([{"metadata": {"name": "slow"}}]).found


class Site:
    """A federation's authority and a server that shows a certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "authority", "derm")
        self.pem = (folder / "authority" / "ca.pem").read_text()

    def certificate(self, names: list[str], **changes: Any) -> bytes:
        key = new_key(self.folder / "tls.key")
        request = SigningRequest.make(key, server_uri("derm"))
        return self.authority.issue_server(request, names, **changes)

    @contextmanager
    def serving(self, certificate: bytes, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Iterator[str]:
        (self.folder / "tls.crt").write_bytes(certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = newest
        context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")

        def shake(connection: socket.socket) -> None:
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)
            except OSError:
                pass

        with listening(shake) as address:
            yield address


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(120)
                answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def look(address: str, expected: Expectation, proxy: str | None = None) -> dict[str, Check]:
    return {check.name.split()[0]: check for check in address_checks(address, expected, proxy)}


def test_a_server_that_is_the_federations(site: Site) -> None:
    with site.serving(site.certificate(["127.0.0.1"])) as address:
        checks = look(address, Expectation(site.pem, "derm"))
    assert [check.level for check in checks.values()] == [Level.OK] * 3
    assert "anchorage://derm/server" in checks["certificate"].found


def test_an_authority_that_is_not_known_is_a_warning(site: Site) -> None:
    with site.serving(site.certificate(["127.0.0.1"])) as address:
        assert look(address, Expectation())["TLS"].level is Level.WARN


@pytest.mark.parametrize(
    ("names", "other_authority", "part", "remedy"),
    [
        (["elsewhere.org"], False, "IP address mismatch", "spec.server.names"),
        (["127.0.0.1"], True, "certificate", "opens TLS"),
    ],
)
def test_certificates_that_are_refused(
    site: Site, tmp_path: Path, names: list[str], other_authority: bool, part: str, remedy: str
) -> None:
    pem = site.pem
    if other_authority:
        Authority.create(tmp_path / "other", "derm")
        pem = (tmp_path / "other" / "ca.pem").read_text()
    with site.serving(site.certificate(names)) as address:
        check = look(address, Expectation(pem, "derm"))["TLS"]
    assert check.level is Level.FAIL and part in check.found and remedy in check.remedy


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.authority = Authority.load(tmp_path / "authority", now=lambda: time.time() - 86_400)
    with site.serving(site.certificate(["127.0.0.1"], valid=timedelta(hours=1))) as address:
        check = look(address, Expectation(site.pem, "derm"))["TLS"]
    assert check.level is Level.FAIL and "expired" in check.found and "operator" in check.remedy


def test_old_tls_is_refused(site: Site) -> None:
    with site.serving(site.certificate(["127.0.0.1"]), newest=ssl.TLSVersion.TLSv1_2) as address:
        check = look(address, Expectation(site.pem))["TLS"]
    assert check.level is Level.FAIL and "TLS 1.3" in check.remedy


def test_a_certificate_of_another_federation_is_told(site: Site) -> None:
    certificate = x509.load_pem_x509_certificate(site.certificate(["127.0.0.1"]))
    end = certificate.not_valid_after_utc.timestamp()
    assert certificate_check(certificate, "a:1", "lung", 0).level is Level.FAIL
    assert certificate_check(certificate, "a:1", "derm", end - 3600).level is Level.WARN
    assert certificate_check(certificate, "a:1", "", end + 1).level is Level.FAIL


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (check,) = address_checks(f"127.0.0.1:{port}", Expectation(), None)
    assert check.level is Level.FAIL and "refused" in check.found and check.remedy


def test_through_a_proxy(site: Site) -> None:
    asked: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        asked.append(connection.recv(4096))
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    with listening(proxy) as address:
        (check,) = address_checks("fed.example.org:8443", Expectation(), f"http://{address}")
    assert asked[0].startswith(b"CONNECT fed.example.org:8443 HTTP/1.1\r\n")
    assert check.level is Level.FAIL and "403 Forbidden" in check.found


def test_an_enrolment_file_names_authority_and_addresses(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "enrolment.yaml"
    values = {"federation": "derm", "server": "a:1", "enrolment": "a:2", "authority": site.pem, "token": "secret"}
    path.write_text(yaml.safe_dump({"enrolment": values}))
    assert read_expectation(path) == Expectation(site.pem, "derm", ("a:1", "a:2"))
    assert read_expectation(tmp_path / "authority" / "ca.pem") == Expectation(site.pem)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"enrolment: {authority: x}", b"a: ["])
def test_a_file_that_holds_no_authority(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for wrong in (path, tmp_path / "missing"):
        with pytest.raises(AnchorageError) as caught:
            read_expectation(wrong)
        assert caught.value.failure is cluster.ENROLMENT_FILE_UNUSABLE and "\n" not in caught.value.message

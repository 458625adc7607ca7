"""The Kubernetes client over the fake API server: verbs, pages, refusals, and where its library is loaded."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_api.server import FakeApi, Handler
from fake_api.store import PLURALS, Refused
from kubernetes.client import Configuration
from two_addresses import NAME, dead_address_first

from anchorage.api.errors import AnchorageError, cluster
from anchorage.transport.kube.access import ClusterAccess, read_kubeconfig, read_service_account
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.execution import CommandError
from anchorage.transport.kube.resources import RESOURCES, json_object
from anchorage.transport.pki import Authority, certificate_of


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi().start()
    yield api
    api.stop()


@pytest.fixture
def counted() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def client(api: FakeApi, tmp_path: Path, counted: list[tuple[str, int]]) -> Iterator[KubeClient]:
    access = read_kubeconfig(str(api.kubeconfig(tmp_path / "kubeconfig")))
    client = KubeClient(access, field_manager="tester", count=lambda *request: counted.append(request))
    yield client
    client.close()


def test_nothing_is_sent_that_may_not_be_written_now(api: FakeApi, client: KubeClient) -> None:
    class NotNowError(Exception):
        pass

    def refuse() -> None:
        raise NotNowError

    made = client.create(secret())
    client.before_write = refuse
    body = secret(data={"x": "1"})
    for write in (client.create, client.apply, client.apply_status):
        with pytest.raises(NotNowError):
            write(body)
    with pytest.raises(NotNowError):
        client.patch("Secret", "ns", "a", {"data": {"x": "1"}})
    with pytest.raises(NotNowError):
        client.delete("Secret", "ns", "a")
    assert client.get("Secret", "ns", "a") == made
    assert len(api.writes()) == 1


def secret(name: str = "a", **more: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "ns"}, **more}


def test_an_object_lives_and_dies(api: FakeApi, client: KubeClient, counted: list[tuple[str, int]]) -> None:
    assert client.get("Secret", "ns", "a") is None
    made = client.create(secret(data={"x": "1", "y": "2"}))
    assert client.get("Secret", "ns", "a") == made
    with pytest.raises(ApiError) as second_error:
        client.create(secret())
    assert (second_error.value.status, second_error.value.reason) == (409, "AlreadyExists")
    assert client.patch("Secret", "ns", "a", {"data": {"x": None}})["data"] == {"y": "2"}
    with pytest.raises(ApiError) as late:
        client.patch("Secret", "ns", "a", {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}})
    assert (late.value.status, late.value.reason) == (409, "Conflict")
    assert client.apply(secret(data={"z": "3"}))["data"] == {"y": "2", "z": "3"}
    for _ in range(2):
        client.delete("Secret", "ns", "a")
    assert client.get("Secret", "ns", "a") is None
    assert counted[:3] == [("GET", 404), ("POST", 200), ("GET", 200)]
    assert {asked.query["fieldManager"] for asked in api.writes() if asked.method in ("POST", "PATCH")} == {"tester"}


def test_a_status_is_applied_to_what_is_there(api: FakeApi, client: KubeClient) -> None:
    body = {**secret(), "kind": "Silo", "apiVersion": "anchorage.dev/v1alpha1", "status": {"round": 3}}
    with pytest.raises(ApiError) as missing:
        client.apply_status(body)
    assert missing.value.status == 404 and missing.value.failure is cluster.CLUSTER_REFUSED
    api.put("silos", {"metadata": {"name": "a"}}, "ns")
    assert client.apply_status(body)["status"] == {"round": 3}


def test_lists_turn_pages(api: FakeApi, client: KubeClient) -> None:
    api.page = 2
    for number in range(5):
        labels = {"odd": "yes"} if number % 2 else {}
        api.put("pods", {"metadata": {"name": f"p{number}", "labels": labels}}, "ns" if number < 4 else "other")
    assert [pod["metadata"]["name"] for pod in client.list("Pod", "ns")] == ["p0", "p1", "p2", "p3"]
    assert {(pod["kind"], pod["apiVersion"]) for pod in client.list("Pod", None)} == {("Pod", "v1")}
    assert [metadata["name"] for metadata in client.list_metadata("Pod", None, "odd=yes")] == ["p1", "p3"]
    assert list(client.list("Pod", "empty")) == list(client.list_metadata("Pod", "empty")) == []


def test_the_latest_version_is_never_behind_what_was_written(api: FakeApi, client: KubeClient) -> None:
    before = int(client.latest_version("ConfigMap", "study"))
    api.put("configmaps", {"metadata": {"name": "x"}})
    assert int(client.latest_version("ConfigMap", "study")) > before


def test_a_watch_goes_on_after_a_list(api: FakeApi, client: KubeClient, counted: list[tuple[str, int]]) -> None:
    api.page, api.bookmark_seconds = 1, 0.0
    for name in ("a", "b"):
        api.put("pods", {"metadata": {"name": name, "labels": {"x": "y"}}}, "ns")
    pages = [(version, [pod["metadata"]["name"] for pod in pods]) for version, pods in client.pages("Pod", "ns", "x=y")]
    assert [names for _, names in pages] == [["a"], ["b"]]
    version = pages[-1][0]
    stream = client.watch("Pod", "ns", "x=y", version, seconds=60, silent_seconds=60.0)
    api.put("pods", {"metadata": {"name": "others"}}, "ns")
    api.put("pods", {"metadata": {"name": "c", "labels": {"x": "y"}}}, "ns")
    api.store.delete("pods", "ns", "a")
    events = [event for event in (next(stream.events) for _ in range(20)) if event[0] != "BOOKMARK"][:2]
    assert [(change, body["kind"], body["metadata"]["name"]) for change, body in events] == [
        ("ADDED", "Pod", "c"),
        ("DELETED", "Pod", "a"),
    ]
    asked = api.asked[-1].query
    assert asked == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": "60",
        "labelSelector": "x=y",
    }
    assert counted[-1] == ("GET", 200)
    stream.shutdown()
    with pytest.raises(StopIteration):
        while True:
            next(stream.events)
    stream.shutdown()


@pytest.mark.parametrize(("watching", "status"), [("gone", 410), ("failing", 500)])
def test_a_stream_that_the_server_ends_by_an_error_raises_it(
    api: FakeApi, client: KubeClient, watching: str, status: int
) -> None:
    api.watching = watching
    with pytest.raises(ApiError) as raised:
        list(client.watch("Pod", "ns", "", "1", seconds=60, silent_seconds=60.0).events)
    assert raised.value.status == status and "watch pods" in raised.value.message


def test_a_watch_that_is_refused_raises_it(api: FakeApi, client: KubeClient) -> None:
    api.denied = {("watch", "pods")}
    with pytest.raises(ApiError) as raised:
        client.watch("Pod", "ns", "", "1", seconds=60, silent_seconds=60.0)
    assert raised.value.failure is cluster.CLUSTER_FORBIDDEN


def test_a_silent_stream_is_unreachable(api: FakeApi, client: KubeClient) -> None:
    api.watching = "silent"
    stream = client.watch("Pod", "ns", "", "1", seconds=60, silent_seconds=0.05)
    with pytest.raises(ApiError) as raised:
        next(stream.events)
    assert raised.value.failure is cluster.CLUSTER_UNREACHABLE


def test_a_shutdown_ends_the_wait_of_another_thread(api: FakeApi, client: KubeClient) -> None:
    api.watching = "silent"
    stream = client.watch("Pod", "ns", "", "1", seconds=60, silent_seconds=600.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: list(stream.events))
        stream.shutdown()
        assert waiting.result(60.0) == []


@pytest.mark.parametrize("line", [b"no json", b"[1]", b"{}", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": 1}'])
def test_a_line_that_is_no_event_is_an_error(
    api: FakeApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setattr(Handler, "_line", lambda handler, event: handler.wfile.write(line + b"\n"))
    api.watching = "gone"
    with pytest.raises(ApiError, match="no event"):
        list(client.watch("Pod", "ns", "", "1", seconds=60, silent_seconds=60.0).events)


@pytest.mark.parametrize(
    ("status", "failure"),
    [(401, cluster.CLUSTER_UNAUTHENTICATED), (403, cluster.CLUSTER_FORBIDDEN), (429, cluster.CLUSTER_REFUSED)],
)
def test_a_refusal_keeps_what_the_server_said(api: FakeApi, client: KubeClient, status: int, failure: object) -> None:
    api.refuse = lambda asked: Refused(status, "Reason", "line one\nline two", 4)
    with pytest.raises(ApiError) as raised:
        client.apply({**secret(), "kind": "StatefulSet"})
    error = raised.value
    assert (error.status, error.reason, error.retry_after, error.failure) == (status, "Reason", 4.0, failure)
    assert error.message.endswith("line one line two") and "context 'fake'" in error.message
    assert status == 401 or "patch statefulsets.apps 'a' in namespace 'ns'" in error.message


def test_a_resource_that_is_not_installed_is_no_missing_object(api: FakeApi, client: KubeClient) -> None:
    api.unknown = {"silos"}
    for request in (lambda: client.get("Silo", "ns", "a"), lambda: client.delete("Silo", "ns", "a")):
        with pytest.raises(ApiError) as raised:
            request()
        assert raised.value.failure is cluster.RESOURCES_NOT_INSTALLED
        assert "silos.anchorage.dev" in raised.value.message


def test_a_server_that_is_away_is_unreachable(api: FakeApi, client: KubeClient, counted: list[tuple[str, int]]) -> None:
    client.version()
    api.stop()
    with pytest.raises(ApiError) as raised:
        client.get("Secret", "ns", "a")
    assert (raised.value.status, raised.value.failure) == (0, cluster.CLUSTER_UNREACHABLE)
    assert counted[-1] == ("GET", 0) and "127.0.0.1" in raised.value.message
    api.start()
    assert client.get("Secret", "ns", "a") is None


def test_rights_are_asked_for(api: FakeApi, client: KubeClient) -> None:
    api.denied = {("patch", "silos/status")}
    assert client.may("patch", "Silo", namespace="ns")
    assert not client.may("patch", "Silo", namespace="ns", subresource="status")


def test_the_second_address_of_a_name_is_tried_within_seconds(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = dead_address_first(monkeypatch)
    file = api.kubeconfig(tmp_path / "kubeconfig")
    file.write_text(file.read_text().replace("127.0.0.1", NAME))
    client = KubeClient(read_kubeconfig(str(file)), field_manager="tester")
    assert client.get("Secret", "ns", "a") is None
    api.put("pods", {"metadata": {"name": "p"}}, "ns")
    api.run = lambda pod, command: subprocess.CompletedProcess(command, 0, b"done", b"")
    assert b"".join(client.execute("ns", "p", "c", ("end", "0"))) == b"done"
    client.close()
    assert len(waited) >= 2 and all(seconds is not None and seconds <= 10 for seconds in waited)


def test_a_command_streams_its_output_and_tells_its_end(api: FakeApi, client: KubeClient) -> None:
    api.put("pods", {"metadata": {"name": "p"}}, "ns")
    output = bytes(range(256)) * 400
    api.run = lambda pod, command: subprocess.CompletedProcess(command, int(command[1]), output, b"said")
    assert b"".join(client.execute("ns", "p", "c", ("end", "0"))) == output
    with pytest.raises(CommandError) as raised:
        list(client.execute("ns", "p", "c", ("end", "3")))
    assert (raised.value.exit_code, raised.value.stderr) == (3, "said")
    with pytest.raises(CommandError) as missing:
        list(client.execute("ns", "nobody", "c", ("end", "0")))
    assert missing.value.exit_code == -1 and "not found" in missing.value.stderr


def test_every_kind_has_its_path() -> None:
    for plural, (group, version, kind) in PLURALS.items():
        resource = RESOURCES[kind]
        assert (resource.group, resource.version, resource.plural) == (group, version, plural)
    assert (
        RESOURCES["Silo"].path("a b", "x", "status") == "/apis/anchorage.dev/v1alpha1/namespaces/a%20b/silos/x/status"
    )
    assert RESOURCES["Silo"].path(None) == "/apis/anchorage.dev/v1alpha1/silos"
    assert RESOURCES["Node"].path("ignored", "n") == "/api/v1/nodes/n"


@pytest.mark.parametrize("text", [b"", b"[1]", b"no json", b"\xff"])
def test_what_is_no_json_object_is_an_empty_one(text: bytes) -> None:
    assert json_object(text) == {}


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a service account, as a pod at an address of IPv6 has it."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(Authority.make("cluster").certificate_pem)
    return tmp_path


@pytest.mark.parametrize("lacking", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "token", "ca.crt"])
def test_outside_of_a_pod_there_is_no_service_account(pod: Path, monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    monkeypatch.delenv(lacking, raising=False)
    (pod / lacking).unlink(missing_ok=True)
    with pytest.raises(AnchorageError) as raised:
        read_service_account(pod)
    assert raised.value.failure is cluster.KUBECONFIG_UNUSABLE and "--kubeconfig" in raised.value.message
    assert lacking in raised.value.message


def test_a_pod_shows_the_token_that_is_there_now(pod: Path) -> None:
    access = read_service_account(pod)
    assert access.server == "https://[fd00::1]:6443" and access.namespace == "default"
    assert access.authorization() == "Bearer first"
    (pod / "token").write_text("second")
    assert access.authorization() == "Bearer second"


def test_a_pod_trusts_its_authority_alone(pod: Path) -> None:
    access = read_service_account(pod)
    tls = access.tls()
    assert tls is not None and tls.verify_mode is ssl.CERT_REQUIRED and tls.check_hostname
    trusted = certificate_of((pod / "ca.crt").read_bytes(), "the authority").serial_number
    assert [int(str(each["serialNumber"]), 16) for each in tls.get_ca_certs()] == [trusted]
    used = access.pool(3).connection_pool_kw
    assert used["maxsize"] == 3 and used["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert used["ssl_context"].get_ca_certs() == tls.get_ca_certs()


def proxied(exceptions: str = "", proxy: str = "http://user:word@proxy:3128", **more: str) -> ClusterAccess:
    configuration = Configuration(host="https://api.example.org:6443", proxy=proxy, no_proxy=exceptions)
    for name, value in more.items():
        setattr(configuration, name, value)
    return ClusterAccess(configuration)


@pytest.mark.parametrize(
    "exceptions", ["*", "api.example.org", "API.example.org:6443", "x, .example.org", "example.org", "10.0.0.0/8,org"]
)
def test_an_exception_bypasses_the_proxy(exceptions: str) -> None:
    access = proxied(exceptions)
    assert access.proxy is None and access.pool(1).proxy is None


@pytest.mark.parametrize("exceptions", ["", "10.0.0.0/8", "ample.org", "api.example.org:443", "api.example.org.uk"])
def test_requests_go_through_the_proxy(exceptions: str) -> None:
    access = proxied(exceptions)
    assert access.proxy == "http://user:word@proxy:3128"
    assert access.pool(1).proxy.host == "proxy"


def test_a_network_bypasses_the_proxy() -> None:
    for address in ("10.1.2.3", "[fd00::1]"):
        configuration = Configuration(host=f"https://{address}", proxy="http://proxy", no_proxy="10.0.0.0/8,fd00::/8")
        assert ClusterAccess(configuration).proxy is None


def test_a_proxy_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(AnchorageError) as raised:
        proxied(proxy="ftp://proxy").pool(1)
    assert raised.value.failure is cluster.KUBECONFIG_UNUSABLE and "ftp" in raised.value.message


def test_another_name_of_the_server_is_asked_for() -> None:
    assert proxied(tls_server_name="kubernetes").pool(1).connection_pool_kw["server_hostname"] == "kubernetes"


def test_the_operator_does_without_the_library_and_torch(pod: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "sys.modules['kubernetes'] = None\n"
        "import anchorage_operator.main\n"
        "from anchorage.transport.kube.access import read_service_account\n"
        "from anchorage.transport.kube.client import KubeClient\n"
        "KubeClient(read_service_account(Path(sys.argv[1])), field_manager='tester').close()\n"
        "assert not {'torch', 'grpc', 'websocket', 'google.protobuf'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(pod)], check=True)


def test_nothing_is_loaded_of_the_library_before_the_first_connection() -> None:
    code = (
        "import sys\n"
        "import fedctl.main, anchorage.transport.kube.client\n"
        "assert not {'kubernetes', 'urllib3', 'websocket', 'torch'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

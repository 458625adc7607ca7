"""The Kubernetes client over TLS, directly and through a hospital's proxy, to a server whose certificate has another name."""

import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from connect_proxy import ConnectProxy
from fake_api.server import TOKEN, FakeApi
from kubernetes.client import Configuration

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.pki import Authority, SigningRequest, key_to_pem, make_key, server_uri

PATIENCE_SECONDS = 60.0
NAME = "kubernetes.default.svc"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    authority, key = Authority.make("cluster"), make_key()
    chain = tmp_path / "server.pem"
    chain.write_bytes(key_to_pem(key) + authority.issue_server(SigningRequest.make(key, server_uri("cluster")), [NAME]))
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    api = FakeApi()
    api.tls, api.token = context, TOKEN
    api.start()
    yield api
    api.stop()


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    proxy = ConnectProxy()
    yield proxy
    proxy.close()


def client_of(api: FakeApi, folder: Path, proxy: str = "", name: str = NAME) -> KubeClient:
    configuration = Configuration(host=f"https://127.0.0.1:{api.port}", ssl_ca_cert=str(folder / "ca.crt"))
    configuration.tls_server_name, configuration.no_proxy = name, ""
    configuration.proxy = proxy.replace("127.0.0.1", "user:word@localhost") or None
    configuration.api_key["BearerToken"] = f"Bearer {TOKEN}"
    return KubeClient(ClusterAccess(configuration), field_manager="tester")


@pytest.mark.parametrize("proxied", [False, True])
def test_requests_and_commands(api: FakeApi, proxy: ConnectProxy, tmp_path: Path, proxied: bool) -> None:
    client = client_of(api, tmp_path, proxy.url if proxied else "")
    api.put("pods", {"metadata": {"name": "p"}}, "ns")
    api.run = lambda pod, command: subprocess.CompletedProcess(command, 0, b"output", b"")
    assert [pod["metadata"]["name"] for pod in client.list("Pod", "ns")] == ["p"]
    assert b"".join(client.execute("ns", "p", "c", ("true",))) == b"output"
    client.close()
    assert proxy.asked == [f"CONNECT 127.0.0.1:{api.port}"] * (2 if proxied else 0)


def test_another_name_is_not_trusted(api: FakeApi, tmp_path: Path) -> None:
    client = client_of(api, tmp_path, name="example.org")
    with pytest.raises(ApiError, match="certificate"):
        client.get("Pod", "ns", "p")
    with pytest.raises(ApiError, match="certificate"):
        list(client.execute("ns", "p", "c", ("true",)))
    client.close()


def test_a_shutdown_ends_the_wait_for_an_event(api: FakeApi, tmp_path: Path) -> None:
    client = client_of(api, tmp_path)
    api.watching = "silent"
    stream = client.watch("Pod", "ns", "", "1", seconds=600, silent_seconds=600.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: list(stream.events))
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        stream.shutdown()
        assert waiting.exception(PATIENCE_SECONDS) is None or isinstance(waiting.exception(), ApiError)
    client.close()

"""How to reach a cluster's API server and with which credentials: from a kubeconfig, or from a pod's service account."""

import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import yaml

from anchorage.api.errors import AnchorageError, cluster
from anchorage.api.regular_files import check_regular, read_regular

DEFAULT_KUBECONFIG = "~/.kube/config"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""


@dataclass(frozen=True)
class ServiceAccount:
    """A pod's access, under the names of `kubernetes.client.Configuration`: the library takes memory that the operator can do without."""

    host: str
    """The API server's URL."""
    ssl_ca_cert: str
    """File with the certificates of the authorities to trust."""
    token: Path
    """File with the token, which the kubelet renews."""
    ca_cert_data: ClassVar[None] = None
    cert_file: ClassVar[None] = None
    proxy: ClassVar[None] = None
    tls_server_name: ClassVar[None] = None
    verify_ssl: ClassVar[bool] = True

    def get_api_key_with_prefix(self, identifier: str, alias: str | None = None) -> str:
        """Return the value of the Authorization header; `OSError` where the token cannot be read."""
        return f"Bearer {read_regular(self.token).decode().strip()}"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """An API server's address with the credentials for it."""

    configuration: Any
    """Of type `kubernetes.client.Configuration`, or a `ServiceAccount`."""
    context: str = ""
    """The kubeconfig's context; empty in a pod."""
    namespace: str = "default"
    """Namespace that the user means."""

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.configuration.host)

    @property
    def server_name(self) -> str | None:
        """The name that the API server's certificate must have; None for the one in its URL."""
        name: str | None = self.configuration.tls_server_name
        return name or None

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy before the API server, from the kubeconfig or the environment; None for none."""
        known = self.configuration
        return known.proxy if known.proxy and not _bypasses_proxy(self.server, known.no_proxy or "") else None

    def tls(self) -> ssl.SSLContext | None:
        """Return TLS settings for an HTTP or WebSocket client; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        known = self.configuration
        tls = ssl.create_default_context(cafile=known.ssl_ca_cert, cadata=known.ca_cert_data)
        if not known.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if known.cert_file:
            tls.load_cert_chain(known.cert_file, known.key_file)
        return tls

    def pool(self, connections: int) -> Any:
        """Return the `urllib3.PoolManager` for requests, which keeps as many connections.

        Raises
        ------
        AnchorageError
            The proxy is of a kind that is not supported, or not without another package.
        """
        from urllib3 import PoolManager, ProxyManager
        from urllib3.exceptions import HTTPError

        options: dict[str, Any] = {"maxsize": connections, "ssl_context": self.tls()}
        if self.server_name:
            options["server_hostname"] = self.server_name
        proxy = self.proxy
        if proxy is None:
            return PoolManager(**options)
        try:
            if proxy.startswith("socks"):
                from urllib3.contrib.socks import SOCKSProxyManager

                return SOCKSProxyManager(proxy, **options)
            return ProxyManager(proxy, proxy_headers=self.configuration.proxy_headers, **options)
        except (ImportError, HTTPError, ValueError) as error:
            raise AnchorageError(cluster.KUBECONFIG_UNUSABLE, f"proxy of the API server: {error}") from error

    def authorization(self) -> str | None:
        """Return the present value of the Authorization header; tokens are renewed while a process runs."""
        token: str | None = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return token or None


def read_kubeconfig(file: str | None = None, context: str | None = None, namespace: str | None = None) -> ClusterAccess:
    """Read a kubeconfig.

    Parameters
    ----------
    file : str or None
        None takes the one that KUBECONFIG names, or the user's own.
    context : str or None
        None takes the current one.
    namespace : str or None
        None takes the context's, or ``default``.

    Raises
    ------
    AnchorageError
        The Kubernetes library is not installed, there is no usable kubeconfig, or the context is unknown.
    """
    client, config = _library()
    file = file or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    try:
        _check_files(*map(os.path.expanduser, file.split(os.pathsep)))
        contexts, current = config.list_kube_config_contexts(file)
        known = {item["name"]: item["context"] for item in contexts}
        name = context or current["name"]
        if name not in known:
            context_names = ", ".join(sorted(known)) or "none"
            raise AnchorageError(cluster.CONTEXT_UNKNOWN, f"{file} has no context {name!r}; there are: {context_names}")
        configuration = client.Configuration()
        config.load_kube_config(file, context=name, client_configuration=configuration)
        _check_files(configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, KeyError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise AnchorageError(cluster.KUBECONFIG_UNUSABLE, f"kubeconfig {file}: {why}") from error
    return ClusterAccess(configuration, name, namespace or known[name].get("namespace") or "default")


def read_service_account(folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """Return the access that a pod has to its own cluster.

    Raises
    ------
    AnchorageError
        This process runs in no pod with a service account.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    token, authority = folder / "token", folder / "ca.crt"
    lacking = [str(file) for file in (token, authority) if not file.is_file()]
    lacking += [] if host and port else ["KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"]
    if lacking:
        where = "this process runs in no pod with a service account"
        why = f"{where}, there is no {lacking[0]}; name a file with --kubeconfig"
        raise AnchorageError(cluster.KUBECONFIG_UNUSABLE, why)
    address = f"[{host}]" if ":" in host else host
    return ClusterAccess(ServiceAccount(f"https://{address}:{port}", str(authority), token))


def _bypasses_proxy(server: str, exceptions: str) -> bool:
    """Return whether one of the exceptions, separated by commas, names a server: a host, a domain, a network or ``*``."""
    host = (urlsplit(server).hostname or "").lower()
    for exception in filter(None, (each.strip().lower().lstrip(".") for each in exceptions.split(","))):
        if exception in ("*", host, urlsplit(server).netloc.lower()) or host.endswith(f".{exception}"):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False):
                return True
        except ValueError:
            continue  # one of the two is a name
    return False


def _check_files(*files: str | None) -> None:
    """Check the files that libraries open; those that are not there they name themselves. `OSError` where one is no regular file."""
    for file in files:
        if file and os.path.exists(file):  # noqa: PTH110 - the library's names are texts
            check_regular(file)


def _library() -> tuple[Any, Any]:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise AnchorageError(
            cluster.KUBERNETES_CLIENT_MISSING,
            f"{error.name or 'kubernetes'} cannot be imported; pip install 'anchorage[kubernetes]'",
        ) from error
    return client, config

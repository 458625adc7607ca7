"""How a tracking server is reached: by which of its name's addresses, and through which proxy."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

CONNECT_SECONDS = 10.0
"""How long one address of a name has to accept a connection, TLS included, before the next one is tried."""


def limit_connecting() -> None:
    """Limit what MLflow waits for one address of a name: its one timeout, for connections and answers, is too long for that.

    A name may have an address of IPv6 that leads nowhere before one of IPv4 that works.
    """
    from requests.adapters import HTTPAdapter

    send = HTTPAdapter.send

    def send_soon(self: HTTPAdapter, request: Any, stream: bool = False, timeout: Any = None, **options: Any) -> Any:
        if isinstance(timeout, int | float):
            timeout = min(timeout, CONNECT_SECONDS), timeout
        return send(self, request, stream=stream, timeout=timeout, **options)

    HTTPAdapter.send = send_soon  # type: ignore[method-assign, assignment]


def without_proxy(uri: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which an address of the cluster is reached without a proxy; none where the address is another.

    A proxy that a cluster's policy puts into every pod is for the way out, and does not know the names of Services.
    """
    host = urlsplit(uri).hostname or ""
    if not host or not ("." not in host or host.endswith(".svc") or ".svc." in host):
        return {}
    before = environment.get("no_proxy") or environment.get("NO_PROXY")  # in the order in which requests asks
    return dict.fromkeys(("no_proxy", "NO_PROXY"), f"{before},{host}" if before else host)


def proxy_variable(uri: str, environment: Mapping[str, str]) -> str:
    """Return the name of the variable whose proxy requests to a URI go through; empty for none."""
    from requests.utils import get_environ_proxies, select_proxy

    if not select_proxy(uri, get_environ_proxies(uri)):
        return ""
    names = [f"{kind}_proxy" for kind in (urlsplit(uri).scheme, "all")]
    return next((name for each in names for name in (each, each.upper()) if environment.get(name)), "")

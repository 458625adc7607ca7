"""Proxies for HTTP that the environment names, and addresses that need none."""

from collections.abc import Mapping
from urllib.parse import urlsplit


def without_proxy(uri: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which an address of the cluster or this machine is reached without a proxy; none for another address.

    A proxy that a cluster's policy puts into every pod is for the way out, and does not know the names of Services.
    """
    host = urlsplit(uri).hostname or ""
    inside = "." not in host or host.endswith(".svc") or ".svc." in host or host.startswith("127.")
    if not host or not inside or (":" in host and host != "::1"):
        return {}
    before = environment.get("no_proxy") or environment.get("NO_PROXY")  # in the order in which requests asks
    hosts = [*(before.split(",") if before else ()), host]
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(dict.fromkeys(hosts)))


def proxy_variable(uri: str, environment: Mapping[str, str]) -> str:
    """Return the name of the variable whose proxy requests to a URI go through; empty for none."""
    from requests.utils import get_environ_proxies, select_proxy

    if not select_proxy(uri, get_environ_proxies(uri)):
        return ""
    names = [f"{kind}_proxy" for kind in (urlsplit(uri).scheme, "all")]
    return next((name for each in names for name in (each, each.upper()) if environment.get(name)), "")

"""How long an address of a tracking server has to answer."""

from typing import Any

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

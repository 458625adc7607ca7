"""Connections through the HTTP proxy of a hospital's network.

gRPC by itself obeys ``grpc_proxy``, ``https_proxy``, ``http_proxy`` and ``no_proxy`` of the environment. Here none of them counts: a
connection goes through a proxy (HTTP ``CONNECT``, so that TLS stays between agent and server) where it was told to, and nowhere else.
(``no_proxy`` is switched off in `anchorage.transport.grpc`, before gRPC is imported.)
"""


def proxy_options(proxy: str | None) -> list[tuple[str, int | str]]:
    """Return the channel options for a connection through a proxy.

    Parameters
    ----------
    proxy : str or None
        ``http://host:port``; None for no proxy. The proxy resolves the server's name.
    """
    return [("grpc.http_proxy", proxy)] if proxy else [("grpc.enable_http_proxy", 0)]

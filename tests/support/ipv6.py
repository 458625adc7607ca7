"""Whether this machine has an IPv6 loopback; a container may have none."""

import socket

import pytest


def ipv6_loopback() -> bool:
    """Return whether ``::1`` can be listened on."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not ipv6_loopback(), reason="no IPv6 loopback here")

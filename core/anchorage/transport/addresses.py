"""Which addresses are one party's."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

IPV6_PREFIX = 64
"""Bits of an IPv6 address that a network assigns; the others a machine chooses, as many as it likes."""


def address(host: str) -> IPv4Address | IPv6Address:
    """Return an IP address; one of IPv4 that is written as IPv6 is the same as the plain one.

    Raises
    ------
    ValueError
        It is none.
    """
    ip = ip_address(host.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


def party_of(host: str) -> str:
    """Return what stands for whoever has an address: itself, of IPv6 its /64; another text (a socket in the file system) as it is."""
    try:
        ip = address(host)
    except ValueError:
        return host
    return str(ip) if ip.version == 4 else str(ip_network((ip, IPV6_PREFIX), strict=False))

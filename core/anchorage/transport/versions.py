"""Which releases of server and agent work together: both say the number of their protocol when they meet, and refuse all but neighbours."""

import re
from typing import Literal

from anchorage import __version__
from anchorage.api.errors import AnchorageError, transfer

PROTOCOL = 5
"""Number of this release's protocol. Every minor or major release raises it by one; who says none is taken for 0. No release spoke 2 or 4: scores
became tallies (3), which those that speak 1 do not send, and silos commit to shares of secure aggregation (5), which those that speak 3 do not."""
VERSION = re.compile(r"[0-9A-Za-z.+_-]{0,64}")
"""Form of a release's version, which is for people only."""

Side = Literal["server", "agent"]


def require_neighbour(other: Side, protocol: int, version: str) -> None:
    """Refuse to work with the other side if its release is neither this one nor a neighbour.

    Parameters
    ----------
    other : {"server", "agent"}
        Which side the other one is.
    protocol : int
        The number of its protocol.
    version : str
        Its version, as it says.

    Raises
    ------
    AnchorageError
        AGENT_TOO_OLD or SERVER_TOO_OLD: the side that has to be upgraded.
    """
    if abs(protocol - PROTOCOL) <= 1:
        return
    this_side: Side = "agent" if other == "server" else "server"
    old = other if protocol < PROTOCOL else this_side
    version_text = version if version and VERSION.fullmatch(version) else "of an unknown version"
    detail = f"the {other} is {version_text} (protocol {protocol}), the {this_side} {__version__} (protocol {PROTOCOL})"
    failure = transfer.SERVER_TOO_OLD if old == "server" else transfer.AGENT_TOO_OLD
    raise AnchorageError(failure, f"{detail}; upgrade the {old}: the numbers may differ by one")

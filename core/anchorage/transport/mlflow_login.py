"""Names and passwords by which federations log in to the chart's MLflow: both ends derive them from one key of the platform."""

import hashlib
import hmac

FEDERATION_USERS = "federation."
"""Beginning of the names of federations' users."""


def federation_user(namespace: str, federation: str) -> str:
    """Return the name of a federation's user; neither part has a dot."""
    return f"{FEDERATION_USERS}{namespace}.{federation}"


def federation_password(key: bytes, user: str) -> str:
    """Return the password of a federation's user: HMAC-SHA256 of its name, hexadecimal.

    Parameters
    ----------
    key : bytes
        Key of the installation, which MLflow and the operator have; whoever has it can act as every federation at MLflow.
    user : str
        As `federation_user` returns it.
    """
    return hmac.new(key, b"anchorage MLflow user\0" + user.encode(), hashlib.sha256).hexdigest()

"""The link between silos and server over gRPC, both ends, and enrolment.

The trainer's process needs `anchorage.wire.convert` without gRPC, so the names below are loaded when they are first asked for.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorage.wire.client import GrpcServerLink
    from anchorage.wire.exchange import Exchange
    from anchorage.wire.server import GrpcSiloLink
    from anchorage.wire.session import Session

# gRPC reads these when it is first imported. Its lowest TLS version cannot be set from Python; but of TLS 1.2 only cipher suites
# for RSA keys remain here, and every key of a federation is an elliptic-curve key, so that only TLS 1.3 can be agreed on.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES128-GCM-SHA256"
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.update(no_grpc_proxy="")  # else `no_proxy` would count, see anchorage.wire.proxy

_MODULES = {"Exchange": "exchange", "GrpcServerLink": "client", "GrpcSiloLink": "server", "Session": "session"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"anchorage.wire.{_MODULES[name]}"), name)


__all__ = ["Exchange", "GrpcServerLink", "GrpcSiloLink", "Session"]

"""The link between silos and server over gRPC, both ends, and enrolment.

The trainer's process needs `anchorage.transport.grpc.convert` without gRPC, so the names below are loaded when they are first asked for.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorage.transport.grpc.client import GrpcServerLink
    from anchorage.transport.grpc.server import GrpcSiloLink

# gRPC reads these when it is first imported. Its lowest TLS version cannot be set from Python; but of TLS 1.2 only cipher suites
# for RSA keys remain here, and every key of a federation is an elliptic-curve key, so that only TLS 1.3 can be agreed on.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES128-GCM-SHA256"
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.update(no_grpc_proxy="")  # else `no_proxy` would count, see anchorage.transport.grpc.proxy

_MODULES = {"GrpcServerLink": "client", "GrpcSiloLink": "server"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"anchorage.transport.grpc.{_MODULES[name]}"), name)


__all__ = ["GrpcServerLink", "GrpcSiloLink"]

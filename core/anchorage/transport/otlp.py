"""Whether OpenTelemetry spans are sent: where the standard environment names a collector. Imports OpenTelemetry only then."""

import logging
import os
from typing import TYPE_CHECKING

from anchorage.transport.http_proxies import without_proxy

if TYPE_CHECKING:
    from anchorage.transport.spans import RoundSpans

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables of OpenTelemetry's specification; the first that is set switches spans on."""
PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Name of the exporter by `OTEL_EXPORTER_OTLP_PROTOCOL`."""

_log = logging.getLogger(__name__)


def open_spans(service: str, federation: str, key: str, silo: str = "") -> "RoundSpans | None":
    """Return where to send spans; None where no collector is named, or what is needed is not installed, which the log says.

    Parameters
    ----------
    service : str
        What the process is, ``service.name`` of its spans.
    federation : str
        The federation.
    key : str
        What server and silos of this run alone know of it, from which both derive the same traces.
    silo : str
        The silo whose spans they are; empty at the server.
    """
    endpoints = [endpoint for name in ENDPOINTS if (endpoint := os.environ.get(name))]
    if not endpoints:
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol not in PROTOCOLS:
        _log.warning("no spans are sent: OTEL_EXPORTER_OTLP_PROTOCOL is not one of %s", ", ".join(PROTOCOLS))
        return None
    try:
        from anchorage.transport.spans import RoundSpans, exporter_named

        for endpoint in endpoints:
            os.environ.update(without_proxy(endpoint, os.environ))  # by which the exporter goes
        return RoundSpans(service, federation, key, exporter_named(PROTOCOLS[protocol]), silo)
    except ImportError as error:
        _log.warning("no spans are sent: %s; pip install 'anchorage[otel]'", error)
        return None

"""Records of rounds as JSON: the same at the server, in simulations and for the command line."""

import math
from collections.abc import Mapping
from typing import Any

from anchorage.api.silo_state import SiloState
from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.interfaces import RoundRecord, SiloRecord


def record_to_json(record: RoundRecord) -> dict[str, Any]:
    """Return a record as JSON values with camelCase names; a number that is not finite becomes null."""
    return {
        "round": record.round,
        "digest": record.digest,
        "documents": record.documents,
        "time": record.time,
        "metrics": _finite(record.metrics),
        "silos": [
            {
                "name": silo.name,
                "state": silo.state,
                "weight": silo.weight,
                "samples": {name: int(count) for name, count in silo.samples.items()},
                "metrics": _finite(silo.metrics),
                "code": silo.code,
                "message": silo.message,
                "fingerprint": silo.fingerprint,
                "labels": silo.labels,
                "images": silo.images,
            }
            for silo in record.silos
        ],
        "seconds": _finite(record.seconds),
        "bytesUp": record.bytes_up,
        "bytesDown": record.bytes_down,
        **({"test": {name: _finite(metrics) for name, metrics in record.test.items()}} if record.test else {}),
        **({"embeddings": record.embeddings.to_json()} if record.embeddings else {}),
    }


def record_from_json(values: Mapping[str, Any]) -> RoundRecord:
    """Read what `record_to_json` wrote; null becomes NaN.

    Raises
    ------
    KeyError, TypeError, ValueError
        The values are not of a record.
    """
    return RoundRecord(
        round=values["round"],
        digest=values["digest"],
        documents=values.get("documents", ""),
        time=values["time"],
        metrics=_numbers(values["metrics"]),
        silos=tuple(
            SiloRecord(**{**silo, "state": SiloState(silo["state"]), "metrics": _numbers(silo["metrics"])})
            for silo in values["silos"]
        ),
        seconds=_numbers(values["seconds"]),
        bytes_up=values["bytesUp"],
        bytes_down=values["bytesDown"],
        test={name: _numbers(metrics) for name, metrics in values.get("test", {}).items()},
        embeddings=EmbeddingPlane.from_json(plane) if (plane := values.get("embeddings")) else None,
    )


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: float(number) if math.isfinite(number) else None for name, number in numbers.items()}


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if number is None else number for name, number in values.items()}

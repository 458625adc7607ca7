"""The models of a run that is over as programs, for MLflow: written by the server, which has imported torch, while the sender draws."""

import gc
import logging
from pathlib import Path
from shutil import rmtree

from anchorage.api.errors import AnchorageError
from anchorage.api.imports import import_large
from anchorage.api.inference import DESCRIPTION, read_inference
from anchorage.engine.tracking import PROGRAMS, program_file

LARGEST_MODEL = 256 << 20
"""Bytes of weights; the sender exports larger models one by one, and removes each before the next."""

_log = logging.getLogger(__name__)


def export_programs(models: Path, outbox: Path) -> None:
    """Write the final and the best model as programs into the outbox.

    A model that cannot be exported is left to the sender, which tries once more and tells people why it cannot be registered.

    Parameters
    ----------
    models : Path
        Folder with ``model.json`` and the safetensors files that it names.
    outbox : Path
        The outbox.
    """
    import_large("anchorage.learning.exporting")
    from anchorage.learning.exporting import save_trained

    rmtree(outbox / PROGRAMS, ignore_errors=True)
    try:
        described = read_inference(models / DESCRIPTION)
        for role in ("final", "best"):
            _, weights = described.choose(best=role == "best")
            program = program_file(outbox, weights.digest)
            if not program.exists() and (models / weights.file).stat().st_size <= LARGEST_MODEL:
                program.parent.mkdir(parents=True)
                save_trained(models, role, program)
    except (AnchorageError, OSError) as error:
        _log.info("the sender exports the models", extra={"reason": str(error)})
    gc.freeze()  # what torch imported for it would be searched for garbage when the process ends, which is soon

"""``python -m fedctl.anchors_alone``: trains a federation's model on its anchors alone and writes the metrics."""

import argparse
import json
import os
import sys
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.fact import Fact
from anchorage.api.federation import FederationSpec
from anchorage.api.files import load_federation
from anchorage.api.imports import import_large
from anchorage.api.stages import stage_method
from anchorage.methods import resolve
from anchorage.methods.pretrained import initial_of
from anchorage.transport.files import write_atomically

LEAST_PRIORITY = 19


def main() -> int:
    """Train, write the metrics as JSON, and return the exit status."""
    parser = argparse.ArgumentParser(prog="fedctl.anchors_alone", description="Trains on the anchors alone.")
    parser.add_argument("--federation", type=Path, required=True, help="the federation's documents")
    parser.add_argument("--data-root", type=Path, required=True, help="folder that claims name folders of")
    parser.add_argument("--out", type=Path, required=True, help="file for the metrics")
    options = parser.parse_args()
    os.nice(LEAST_PRIORITY)
    try:
        metrics = measure(options.federation, options.data_root)
    except AnchorageError as error:
        sys.stderr.write(f"{error}\n")
        return error.failure.exit_code
    write_atomically(options.out, json.dumps(metrics).encode())
    return 0


def measure(file: Path, data_root: Path) -> dict[str, float]:
    """Return the metrics on the images of `scored_part` after as many rounds at the server as the federation has.

    Raises
    ------
    AnchorageError
        The documents or the images cannot be used.
    """
    import_large("anchorage.learning.learners")
    from anchorage.learning import data, learners

    spec = load_federation(file).federation.spec
    method = resolve(spec.method, spec.task)
    closed_form = Fact.UNTRAINED in method.facts()  # chooses by validation images; its later rounds are for guesses
    images = {
        name: data.read(section, data_root, spec.model_description, spec.seed)[0]
        for name, section in spec.server_data.items()
        if name in ("anchors", scored_part(spec)) or (name == "validation" and closed_form)
    }
    rounds = spec.rounds - sum(stage.rounds for stage in spec.warm_up)
    stages = [resolve(stage_method(stage), spec.task) for stage in spec.warm_up]
    report = learners.train_on_anchors_alone(
        model=spec.model_description,
        method=method,
        seed=spec.seed,
        anchors=images["anchors"],
        test=images[scored_part(spec)],
        rounds=1 if closed_form else rounds,
        device="auto",
        initial=initial_of(spec, data_root),
        validation=images["validation"] if closed_form and "validation" in images else None,
        components=next((each for each in stages if Fact.PRINCIPAL_COMPONENTS in each.facts()), None),
    )
    return dict(report.metrics)


def scored_part(spec: FederationSpec) -> str:
    """Return on which images results are compared: ``test``, or ``validation`` where there is no test part."""
    return "test" if "test" in spec.server_data else "validation"


if __name__ == "__main__":
    sys.exit(main())

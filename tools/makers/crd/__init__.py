"""The CustomResourceDefinitions, generated from the documents and the built-in pieces, for kubectl, for the chart and for `fedctl doctor`."""

import json
from collections.abc import Mapping
from pathlib import Path

from fedctl.cluster_checks import DEFINITIONS, schemas_digest
from makers.crd.definitions import RESOURCES, definition, templates
from makers.crd.definitions import files as definition_files

FOLDER, CHART = Path("crds"), Path("charts/anchorage/templates")


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the definitions, the chart's templates of them, and what fedctl knows of them; nothing of it depends on the checkout."""
    known = {resource.name: schemas_digest(definition(resource)) for resource in RESOURCES}
    return {
        **{FOLDER / name: text for name, text in definition_files().items()},
        **{CHART / name: text for name, text in templates().items()},
        Path("cli/fedctl") / DEFINITIONS: json.dumps(known, indent=1) + "\n",
    }

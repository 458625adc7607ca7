"""Pictures of embeddings of validation images, for a run's report."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.tracking import figures
from fedctl.report_figures import Picture, render_picture
from fedctl.source import Round

_SIZE = (4.8, 4.8)


def embedding_pictures(rounds: Sequence[Round], task: Mapping[str, Any]) -> Iterator[Picture]:
    """Draw the embeddings of each round whose record has them.

    Parameters
    ----------
    rounds : sequence of Round
        The journal.
    task : mapping of str to Any
        ``spec.task`` of the federation, which names the classes.
    """
    classes = next(iter(task.values()))["classes"]
    for record in rounds:
        if (values := record.get("embeddings")) is not None:
            plane = EmbeddingPlane.from_json(values)
            right = sum(true == predicted for true, predicted, _, _ in plane.points)
            says = f"{right} of {len(plane.points)} images are predicted rightly."
            title = f"{figures.PROJECTION_NAMES[plane.projection]} of {plane.layer}, round {record['round']}"
            yield render_picture(title, says, partial(_draw, plane=plane, classes=classes), size=_SIZE)


def _draw(axes: Axes, plane: EmbeddingPlane, classes: Sequence[str]) -> None:
    figures.draw_projected(axes, plane.projection, plane.as_array(), classes)

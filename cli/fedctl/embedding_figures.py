"""Pictures of embeddings of validation images, for a run's report."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from anchorage.api.slot import read_piece
from anchorage.api.task import Task
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
        ``spec.task`` of the federation.
    """
    read = read_piece("task", task)
    assert isinstance(read, Task), "it was valid when the run began"
    for record in rounds:
        if (values := record.get("embeddings")) is not None:
            plane = EmbeddingPlane.from_json(values)
            says = _says(plane, read)
            title = f"{figures.PROJECTION_NAMES[plane.projection]} of {plane.layer}, round {record['round']}"
            yield render_picture(title, says, partial(_draw, plane=plane, task=read), size=_SIZE)


def _says(plane: EmbeddingPlane, task: Task) -> str:
    if not figures.classes_of(task):
        return f"{len(plane.points)} images by what is true of them."
    right = sum(true == predicted for true, predicted, _, _ in plane.points)
    return f"{right} of {len(plane.points)} images are predicted rightly."


def _draw(axes: Axes, plane: EmbeddingPlane, task: Task) -> None:
    figures.draw_projected(axes, plane.projection, plane.as_array(), task)

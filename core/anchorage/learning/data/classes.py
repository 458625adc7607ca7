"""What a site calls the federation's classes: its folders, labels and columns are matched by name, never by their order."""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER
from anchorage.learning.data.label_kinds import SEVERAL, refuse_masks, refuse_several, several_findings

_SHOWN = 10


class SiteClasses:
    """The federation's classes, and the names that a site has for them.

    Parameters
    ----------
    names : tuple of str
        The federation's classes, in the order of the model's outputs.
    class_map : mapping of str to str
        Local name to class; a name that it lacks is the class of the same name.
    unknown : str
        What becomes of an image whose name is no class: all are refused, it alone is left out, or it has no label.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: `class_map` leads to a class that the federation has not.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        class_map: Mapping[str, str],
        unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse",
    ) -> None:
        self.names, self._unknown = names, unknown
        position = {name: place for place, name in enumerate(names)}
        if astray := [name for name in class_map.values() if name not in position]:
            message = f"classMap leads to {', '.join(astray[:_SHOWN])}; the federation has the classes {self._listed()}"
            raise AnchorageError(CLASSES_DIFFER, message)
        self._position = position | {local: position[name] for local, name in class_map.items()}

    def position(self, name: str) -> int:
        """Return the output that a local name stands for, -1 where it is no class."""
        return self._position.get(name, -1)

    def read(
        self, names: Sequence[str], place: Path, kind: str
    ) -> tuple[NDArray[np.int64], dict[int, tuple[str, str]]]:
        """Turn the local names of images into labels.

        Parameters
        ----------
        names : sequence of str
            One per image, empty where it has no label.
        place : Path
            Folder or table, for messages.
        kind : str
            What the names are: ``folder`` or ``label``.

        Returns
        -------
        labels : ndarray of int64, shape [n]
            Classes, -1 without a label.
        wrong : mapping of int to tuple of str
            Reason and detail by image, of those that are left out.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER: a name is no class, and such names are refused. TASK_UNSUPPORTED: labels name several findings, and are
            refused, or folders are those of images and masks.
        """
        labels = np.array([self.position(name) if name else -1 for name in names], dtype=np.int64)
        unknown = {row: name for row, name in enumerate(names) if name and labels[row] < 0}
        if kind == "folder":
            refuse_masks(place, unknown.values())
        if self._unknown == "Unlabelled":
            return labels, {}
        counts = Counter(unknown.values())
        several = {name: counts[name] for name in several_findings(counts, {*names, *self._position})}
        if self._unknown == "Refuse":
            refuse_several(
                str(place), several, "give each image one label, or leave these images out (onBadImage: Skip)"
            )
            self.refuse(place, kind, counts)
        detail = 'the {} "{}" is no class: mend it, or name its class in classMap'
        return labels, {
            row: ("SeveralFindings", f'"{name[:40]}": {SEVERAL}')
            if name in several
            else ("LabelOutsideClasses", detail.format(kind, name[:40]))
            for row, name in unknown.items()
        }

    def refuse(self, place: Path, kind: str, found: Mapping[str, int]) -> None:
        """Refuse names that are no classes, unless labels are not wanted; `found` counts the images of each.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER, with an entry of `classMap` for each name.
        """
        if not found or self._unknown == "Unlabelled":
            return
        shown = list(found)[:_SHOWN]
        counted = ", ".join(f'"{name[:40]}" ({found[name]} images)' for name in shown)
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        kinds, them = (kind, "it") if len(found) == 1 else (f"{kind}s", "them")
        entries = ", ".join(f"{_quoted(name[:40])}: {self._nearest(name)}" for name in shown)
        raise AnchorageError(
            CLASSES_DIFFER,
            f"{place}: found the {kinds} {counted}{more}, no class of the federation, which has {self._listed()}; "
            f"say which class each is, such as classMap: {{{entries}}}, or rename {them}",
        )

    def _listed(self) -> str:
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return ", ".join(self.names[:_SHOWN]) + more

    def _nearest(self, name: str) -> str:
        """Guess the class that a local name means: one spelt much alike, else none, which nobody can copy by mistake."""
        folded = {known.casefold(): known for known in reversed(self.names)}
        near = get_close_matches(name.casefold(), folded, n=1)
        return _quoted(folded[near[0]]) if near else "CLASS"


def _quoted(name: str) -> str:
    """Write a name as YAML does."""
    return yaml.safe_dump(name, default_flow_style=True, width=1000, allow_unicode=True).removesuffix("\n...\n").strip()

"""Rounds whose updates are averaged while they arrive: only where nothing but the silos' own counts decides, and never of other silos."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_silos import LAYOUT, ScriptedSilo, set_scene, value_of

from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.engine.store import DiskStore, Identity
from anchorage.engine.strategy import Strategy, WeightedMean
from anchorage.transport.messages import TaskFailed
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class CountedMean(WeightedMean):
    """Counts how often whole updates are averaged."""

    def __init__(self, averages: bool = True) -> None:
        self.averages, self.calls = averages, 0

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        self.calls += 1
        return super().aggregate(updates, weights, layout, model)


def play(folder: Path, mean: CountedMean, *of: str, lost: str = "", **settings: Any) -> float:
    """Play a round of silos that add 1, 2 and 3, of 100, 100 and 200 images; `lost` fails when all have announced."""
    silos = [ScriptedSilo("a", 1), ScriptedSilo("b", 2), ScriptedSilo("c", 3, samples=200)]
    with closing(DiskStore(folder, Identity({}, (LAYOUT,)))) as store:
        strategy = Strategy(CountWeigher(*of), mean, compares_norms=False)
        scene = set_scene(*silos, strategy=strategy, store=store, **settings)  # type: ignore[arg-type]
        if lost:
            begin, link = scene.link.permit, scene.link

            def permit(silo: str, task: str, sink: Any) -> None:
                begin(silo, task, sink)
                if len(link.permits) == 3:
                    link.at(link.clock.now(), TaskFailed(lost, task, "ANC-1305", "as scripted"))

            link.permit = permit  # type: ignore[method-assign]
        scene.engine.run()
        return value_of(scene.seen.models[-1])


def test_updates_are_averaged_while_they_arrive(tmp_path: Path) -> None:
    mean = CountedMean()
    assert play(tmp_path, mean, "train", rounds=3) == pytest.approx(3 * 2.25)
    assert mean.calls == 0


def test_whole_ones_are_averaged_where_a_silo_is_lost_on_the_way(tmp_path: Path) -> None:
    mean = CountedMean()
    assert play(tmp_path, mean, "train", lost="b", min_silos=2) == pytest.approx(7 / 3)
    assert mean.calls == 1


def test_whole_ones_are_averaged_by_weights_that_depend_on_more(tmp_path: Path) -> None:
    mean = CountedMean()
    play(tmp_path, mean, "steps")
    assert mean.calls == 1


def test_whole_ones_are_aggregated_where_that_is_no_mean(tmp_path: Path) -> None:
    mean = CountedMean(averages=False)
    assert play(tmp_path, mean, "train") == pytest.approx(2.25)
    assert mean.calls == 1

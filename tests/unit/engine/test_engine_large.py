"""Large auxiliary data in a round, in fake time: behind a silo's update or alone, refused before it comes, and behind the next models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scripted_silos import CountWeigher, PlainLearner, Scene, ScriptedLink, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MEANS_TOO_LARGE
from anchorage.engine.aggregation import RoundMemory
from anchorage.engine.strategy import Strategy
from anchorage.transport.messages import Announced, Announcement, Task
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.joined import JoinedSource, Stretch
from anchorage.transport.tensors.large_arrays import LARGE_BYTES, LargeArrays, joined_behind, layout_of
from anchorage.transport.tensors.layout import Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes, read_arrays

ASKED = "asked"


def rows_of(value: float, count: int = 3) -> LargeArrays:
    arrays = {"rows": np.full((count, 2), value, np.float32)}
    layout = layout_of(arrays)
    return LargeArrays(layout, ModelBytes.from_arrays(layout, arrays))


class Rows(RoundMemory):
    """Keeps the first value of every silo's rows and sends them on, sorted."""

    takes = frozenset({"rows"})

    def __init__(self, first: bool = False) -> None:
        self.first, self.values, self.announcing = first, [], []

    @property
    def gathers_first(self) -> bool:  # type: ignore[override]
        return self.first and not self.announcing

    def first_auxiliary(self) -> Mapping[str, Any]:
        return {ASKED: np.ones(())}

    def refusal(self, announced: Mapping[str, TensorEntry]) -> AnchorageError | None:
        large = announced["rows"].nbytes > 80 if announced else False
        return AnchorageError(MEANS_TOO_LARGE, "too many rows") if large else None

    def receive(self, silo: str, arrays: LargeArrays) -> None:
        self.values.append(float(arrays.rows("rows", 1, 2)[0, 0]))

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        self.announcing.append(sorted(announcements))
        layout = Layout.of([("rows", "F32", (len(self.values), 2))])
        values = np.repeat(np.float32(sorted(self.values)), 2)
        self.large.write(self.slot, layout, [(0, values.tobytes())])

    def behind(self, silo: str = "") -> LargeArrays | None:
        source = self.large._sources.get(self.slot)
        return LargeArrays(Layout.of([("rows", "F32", (len(self.values), 2))]), source[-1]) if source else None

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing is kept."""


class LargeLink(ScriptedLink):
    """Its silos send rows of their `adds`: alone where they are asked for that, else behind their updates where `announces` says how many."""

    announces: dict[str, LargeArrays]
    offers: list[tuple[str, Task, ChunkSource]]

    def assign(self, silo: str, task: Task) -> None:
        script, offered = self.silos[silo], self.offered[task.model.digest]
        self.offers.append((silo, task, offered))
        own_bytes = offered.manifest.nbytes - task.behind.nbytes
        model = ModelBytes.of(PlainLearner.down, np.frombuffer(content(offered)[:own_bytes], np.uint8).copy())
        rows = self.announces.get(silo)
        alone = ASKED in task.auxiliary_data
        source: Any = JoinedSource(PlainLearner.up.digest, []) if alone else script.update_for(model)
        source, behind = joined_behind(source, [rows] if rows is not None else [])
        self.updates[silo, task.id] = source
        announcement = Announcement(task.id, {"train": 100}, {}, {}, source.manifest, behind)
        self.at(self.clock.now() + script.train_seconds, Announced(silo, announcement))


def content(source: ChunkSource) -> bytes:
    return b"".join(source.chunk(index) for index in range(source.manifest.count))


def play(memory: Rows, announces: dict[str, LargeArrays], *, weigher: Any = None, **settings: Any) -> Scene:
    strategy = Strategy(weigher or CountWeigher(), memories={"input_mixing": memory})
    silos = [ScriptedSilo("a", adds=1.0), ScriptedSilo("b", adds=3.0)]
    scene = set_scene(*silos, strategy=strategy, **settings)
    link: Any = scene.link
    link.__class__ = LargeLink
    link.announces, link.offers = announces, []
    scene.engine.run()
    return scene


@pytest.mark.parametrize("barrier", [False, True])
def test_large_data_alone_comes_before_the_first_training(barrier: bool) -> None:
    memory = Rows(first=True)
    scene = play(memory, {"a": rows_of(5), "b": rows_of(4)}, rounds=2, weigher=CountWeigher(barrier=barrier))
    assert sorted(memory.values[:2]) == [4.0, 5.0] and memory.announcing == [["a", "b"]] * 3
    assert value_of(scene.store.latest().model) == 4.0, "rows count for nothing in the mean"
    assert [part.state for part in scene.store.history()[1].silos] == ["Counted"] * 2
    first, second, *trained = scene.link.offers
    assert ASKED in first[1].auxiliary_data and not first[1].behind.tensors and ASKED in second[1].auxiliary_data
    for _, task, model in trained[:2]:
        assert task.behind.by_name["rows"].shape == (2, 2)
        own_bytes = model.manifest.nbytes - task.behind.nbytes
        pool = read_arrays(task.behind, np.frombuffer(content(model)[own_bytes:], np.uint8))
        assert pool["rows"].tolist() == [[4.0, 4.0], [5.0, 5.0]]
    assert trained[0][2] is trained[1][2], "one pass over the bytes for all silos"
    assert scene.store.load_updates(1) == {}


def test_large_data_behind_an_update_does_not_enter_the_mean() -> None:
    memory = Rows()
    scene = play(memory, {"b": rows_of(9)}, rounds=1)
    assert memory.values == [9.0] and memory.announcing == [["a", "b"]]
    assert value_of(scene.store.latest().model) == 2.0


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (rows_of(1, count=11), "ANC-1309"),
        (LargeArrays(layout := Layout.of([("others", "F32", (2,))]), ModelBytes(layout, [bytes(8)])), "ANC-3003"),
    ],
)
def test_large_data_that_nobody_takes_is_refused_before_its_bytes_come(rows: LargeArrays, code: str) -> None:
    memory = Rows()
    scene = play(memory, {"b": rows}, rounds=1, min_silos=1)
    parts = {part.name: part for part in scene.store.history()[1].silos}
    assert parts["b"].state == "Failed" and parts["b"].code == code
    assert scene.link.silos["b"].uploads == 0 and memory.announcing == [["a"]]


@pytest.mark.parametrize("off", [-1, 1])
def test_bytes_that_are_neither_update_nor_large_data_are_refused(off: int) -> None:
    scene = set_scene(ScriptedSilo("a"))
    update, behind = joined_behind(ScriptedSilo("a").update_for(scene.engine.learner.initialise()), [rows_of(1)])
    source = JoinedSource(update.manifest.layout, [Stretch(update, 0, update.manifest.nbytes)])
    wrong = Layout.of([("rows", "F32", (3 + off, 2))])
    scene.engine.strategy.memories = {"input_mixing": Rows()}
    announcement = Announcement("t", {}, {}, {}, source.manifest, behind)
    assert scene.engine._wrong_layout(announcement) is None
    for announced in (
        Announcement("t", {}, {}, {}, source.manifest, wrong),
        Announcement("t", {}, {}, {}, None, behind),
        Announcement("t", {}, {}, {}, source.manifest),
    ):
        refused = scene.engine._wrong_layout(announced)
        assert refused is not None and refused.code == "ANC-3003"


def test_what_the_server_sends_goes_behind_the_model_where_it_is_large() -> None:
    class Telling(PlainLearner):
        def auxiliary_data(self, model: ModelBytes, round_number: int) -> Mapping[str, Any]:
            return {"small": np.ones(3), "anchors": np.full(LARGE_BYTES // 8, float(round_number))}

    strategy = Strategy(CountWeigher())
    scene = set_scene(ScriptedSilo("a"), strategy=strategy, learner=Telling())
    link: Any = scene.link
    link.__class__, link.announces, link.offers = LargeLink, {}, []
    scene.engine.run()
    ((_, task, model),) = link.offers
    assert task.auxiliary_data.keys() == {"small"} and task.behind.by_name.keys() == {"anchors"}
    assert content(model).endswith(np.full(LARGE_BYTES // 8, 1.0).tobytes())

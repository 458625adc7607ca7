"""What silos announce before the first local training (FedMix's means: methods reference, 6.4), in fake time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scripted_silos import CountWeigher, ScriptedLink, ScriptedSilo, set_scene, value_of

from anchorage.engine.aggregation import RoundMemory
from anchorage.engine.strategy import Strategy
from anchorage.transport.messages import Announced, Announcement, Task

ASKED = "asked"


class Names(RoundMemory):
    """Remembers who announced, and asks for that before the first training."""

    def __init__(self) -> None:
        self.announcing: list[list[str]] = []

    @property
    def gathers_first(self) -> bool:  # type: ignore[override]
        return not self.announcing

    def first_auxiliary(self) -> Mapping[str, Any]:
        return {ASKED: np.ones(())}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        self.announcing.append(sorted(announcements))

    def state(self) -> Mapping[str, Any]:
        return {"rounds": np.array(len(self.announcing))}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.announcing = [[] for _ in range(int(state["rounds"]))]


class AnnouncingLink(ScriptedLink):
    """Its silos answer with an announcement alone where that is asked for."""

    def assign(self, silo: str, task: Task) -> None:
        if ASKED in task.auxiliary_data and self.silos[silo].answers:
            self.at(self.clock.now() + 1.0, Announced(silo, Announcement(task.id, {"train": 1}, {}, {}, None)))
        else:
            super().assign(silo, task)


def play(*silos: ScriptedSilo, memory: Names, **settings: Any) -> Any:
    strategy = Strategy(CountWeigher(), memories={"input_mixing": memory})
    scene = set_scene(*silos, strategy=strategy, **settings)
    scene.link.__class__ = AnnouncingLink
    scene.engine.run()
    return scene


def test_every_silo_announces_once_before_the_first_training() -> None:
    memory = Names()
    scene = play(ScriptedSilo("a"), ScriptedSilo("b"), memory=memory, rounds=2, min_silos=2)
    assert memory.announcing == [["a", "b"]] * 3
    assert all(len(silo.trained) == 2 for silo in scene.link.silos.values())
    assert value_of(scene.store.latest().model) == 2.0
    assert [record.round for record in scene.recorder.records] == [0, 1, 2]


def test_a_silo_that_does_not_answer_is_waited_for_no_longer_than_the_deadline() -> None:
    memory = Names()
    play(ScriptedSilo("a"), ScriptedSilo("b", answers=False), memory=memory, round_deadline_seconds=10.0)
    assert memory.announcing == [["a"], ["a"]]


def test_a_server_that_comes_back_does_not_ask_again() -> None:
    memory = Names()
    scene = play(ScriptedSilo("a"), memory=memory, rounds=1)
    restarted = Names()
    play(ScriptedSilo("a"), memory=restarted, rounds=2, store=scene.store)
    assert restarted.announcing == [[], [], ["a"]]

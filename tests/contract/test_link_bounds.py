"""What a silo says is bounded where it enters: the task is closed with its name, and nothing of it reaches the engine."""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from link_world import PROFILE, World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, transfer
from anchorage.simulation.link import InProcessLink
from anchorage.transport.grpc.calls import CHANNEL_OPTIONS, SERVER_OPTIONS, UPLOAD_WINDOW_BYTES
from anchorage.transport.messages import Assigned, Evaluation, Joined, Task, TaskFailed, TaskKind

MODEL = model_of(0.1)
IMAGES = PROFILE.samples


def at_work(world: World, kind: TaskKind = TaskKind.TRAIN) -> tuple[Any, Task]:
    """Connect a silo and give it a task."""
    silo, task = world.connect("a"), replace(train_task(MODEL), kind=kind)
    silo.welcome()
    assert world.event() == Joined("a", PROFILE)
    world.link.offer(MODEL)
    world.link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    return silo, task


def closed(world: World, task: Task, *words: str) -> None:
    """See that the task is over for a reason that names what was wrong, and may be given again."""
    event = world.event()
    assert isinstance(event, TaskFailed)
    assert (event.silo, event.task, event.code) == ("a", task.id, transfer.OUT_OF_BOUNDS.code)
    assert all(word in event.message for word in words) and len(event.message) < 200 and event.message.isprintable()


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"samples": {"train": -1}}, ("train is -1",)),
        ({"samples": {"train": IMAGES + 1}}, (f"0 to {IMAGES}",)),
        ({"samples": {"selected": 10**12}}, ("selected",)),
        ({"samples": {"steps": 2**40}}, ("steps",)),
        ({"metrics": {"../../x": 1.0}}, ("metrics", "../../x")),
        ({"metrics": {"x" * 300: 1.0}}, ("metrics", "xxx…")),
        ({"metrics": {"[bold]\x1b[31m": 1.0}}, ("metrics",)),
        ({"metrics": {"system/memory_mb": -1.0}}, ("system/memory_mb is -1.0",)),
        ({"metrics": {"system/cpu_percent": float("nan")}}, ("system/cpu_percent is nan",)),
        ({"metrics": {str(number): 1.0 for number in range(300)}}, ("300 names",)),
        ({"samples": {"/etc": 1}}, ("samples",)),
        ({"auxiliary_data": {"simil\narity": np.zeros(1)}}, ("auxiliary data",)),
        ({"auxiliary_data": {"validation": np.array([10**15, 1])}}, ("validation", "a count is not")),
        ({"auxiliary_data": {"validation": np.array([3, 2])}}, ("validation", "3 of 2 right")),
        ({"auxiliary_data": {"validation": np.full((2, 2), IMAGES)}}, ("validation", f"of {IMAGES} images")),
    ],
)
def test_an_announcement_out_of_bounds_closes_the_task(
    world: World, claims: Mapping[str, Any], words: tuple[str, ...]
) -> None:
    silo, task = at_work(world)
    with suppress(AnchorageError):  # in one process its own end is told, too
        silo.announce(replace(announcement_of(task, MODEL), **claims))
    closed(world, task, *words)
    world.link.assign("a", task)
    assert order_of(silo) == Assigned(task), "the session goes on"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (np.array([[1, -1], [0, 0]]), "a count is not"),
        (np.array([[IMAGES, 1], [0, 0]]), f"of {IMAGES} images"),
        (np.array([[10**15, 1], [0, 0]]), "a count is not"),
        (np.array([3, 2]), "3 of 2 right"),
        (np.array([1, 2, 3]), "shape is (3,)"),
        (np.array([[1, 2, 3], [1, 2, 3]]), "shape is (2, 3)"),
    ],
)
def test_a_score_out_of_bounds_closes_the_task(world: World, counts: np.ndarray, words: str) -> None:
    silo, task = at_work(world, TaskKind.EVALUATE)
    with suppress(AnchorageError):
        silo.report(Evaluation(task.id, {"validation": counts}))
    closed(world, task, words)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (TaskKind.TRAIN, Evaluation("", {"validation": np.array([1, 2])})),
        (TaskKind.TRAIN, Evaluation("", {}, answer=b"{}")),
        (TaskKind.EVALUATE, Evaluation("", {}, answer=b"{}")),
        (TaskKind.EVALUATE, None),
        (TaskKind.SHOW_KEYS, Evaluation("", {"validation": np.array([1, 2])})),
        (TaskKind.SHOW_KEYS, None),
    ],
)
def test_an_answer_to_a_task_of_another_kind_closes_the_task(
    world: World, kind: TaskKind, answer: Evaluation | None
) -> None:
    silo, task = at_work(world, kind)
    with suppress(AnchorageError):
        if answer is None:
            silo.announce(announcement_of(task, MODEL))
        else:
            silo.report(replace(answer, task=task.id))
    closed(world, task, "does not fit the task")


def test_a_failure_without_a_code_closes_the_task(world: World) -> None:
    silo, task = at_work(world)
    with suppress(AnchorageError):
        silo.fail(task.id, "oops", "x")
    closed(world, task, "no code")


def test_the_text_of_a_failure_is_one_short_line(world: World) -> None:
    silo, task = at_work(world)
    silo.fail(task.id, "ANC-1301", "\x1b[2J[link=https://x]bad\n" + "x" * 1_000_000)
    event = world.event()
    assert isinstance(event, TaskFailed)
    assert len(event.message) == 1024 and event.message.isprintable() and event.message.endswith("x…")


@pytest.mark.parametrize(
    "claims",
    [
        {"samples": 10**12},
        {"labels": "some"},
        {"version": "1\n2"},
        {"fingerprint": "/data/x"},
        {"packages": ("acme",)},
        {"packages": ("acme 1\n",)},
        {"packages": ("/data/x 1",)},
        {"packages": ("acme 1.0",) * 33},
        {"packages": ("a" * 65 + " 1",)},
    ],
)
def test_a_silo_that_says_impossible_things_of_itself_does_not_join(claims: Mapping[str, Any]) -> None:
    link = InProcessLink(None, "{}")
    with pytest.raises(AnchorageError) as caught:
        link.connect("a", replace(PROFILE, **claims))
    assert caught.value.failure is transfer.OUT_OF_BOUNDS


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: sockets elsewhere have no TCP_USER_TIMEOUT")
def test_a_dead_line_is_noticed_within_fifteen_seconds(serve: Callable[..., Any], dial: Callable[..., Any]) -> None:
    """Silence until a ping, and the time for the other end's kernel to acknowledge it, which both ends' sockets have."""
    link, port = serve()
    World(link, lambda silo: dial(port, silo)).connect("a").welcome()
    connected = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as end:
            if end.family in (socket.AF_INET, socket.AF_INET6) and port in (end.getsockname()[1], end.getpeername()[1]):
                connected.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert len(connected) == 2
    assert all(0 < dict(SERVER_OPTIONS)["grpc.keepalive_time_ms"] + patience <= 15_000 for patience in connected)


@pytest.mark.parametrize("options", [SERVER_OPTIONS, CHANNEL_OPTIONS])
def test_a_process_that_hangs_is_noticed_later_than_what_a_slow_line_needs(options: list[tuple[str, int]]) -> None:
    """`test_a_silo_that_hangs_is_noticed_and_taken_back` sees these options act."""
    settings = dict(options)
    assert settings["grpc.keepalive_time_ms"] + settings["grpc.http2.ping_timeout_ms"] <= 70_000
    megabit, queue = 1_000_000 / 8, 1000 * 1500  # of Linux' usual line: a ping waits behind a thousand packets
    assert settings["grpc.http2.ping_timeout_ms"] / 1000 > 2 * (queue + UPLOAD_WINDOW_BYTES) / megabit
    least = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert least < settings["grpc.keepalive_time_ms"], "else the server ends connections for their pings"

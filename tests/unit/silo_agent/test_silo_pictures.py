"""Decoded images in an agent's state folder: what stores them, and what removes them."""

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_volumes import CLASSES, write_pairs
from PIL import Image
from real_silo import METHOD, MODEL, setup_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError, silo
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.single import read_document
from anchorage.learning.data import reading
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.agent import lock_state_folder
from anchorage_silo.commands import carry_out
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import pictures_folder
from anchorage_silo.frames import Setup
from anchorage_silo.main import main
from anchorage_silo.trainer import build_learner


@pytest.fixture(autouse=True)
def everything_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "IN_MEMORY_BYTES", 0)


@pytest.fixture(scope="module")
def initial() -> ModelBytes:
    return build_server_learner(model=MODEL, method=METHOD, seed=5).initialise()


@pytest.fixture
def setup(tmp_path: Path, initial: ModelBytes) -> Setup:
    rng = np.random.default_rng(0)
    for number in range(8):
        folder = tmp_path / "site" / "01"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(folder / f"{number}.png")
    section = SiloData(format="ImageFolder", claim_name="site")
    made = setup_of(tmp_path / "state", initial, "All", section)
    return replace(made, config=json.dumps({**made.plain, "dataRoot": str(tmp_path)}))


@pytest.fixture
def config(setup: Setup, tmp_path: Path) -> Iterator[SiloConfig]:
    file = tmp_path / "silo.yaml"
    file.write_text(
        f"silo: a\nfederation: derm\nserver: localhost:1\nenrolment: localhost:2\nauthority: ca.pem\n"
        f"state: {setup.plain['state']}\nlabels: All\ndataRoot: {tmp_path}\n"
        "data: {format: ImageFolder, claimName: site}\n"
    )
    yield read_document(file, SiloConfig)


def stored(setup: Setup) -> list[Path]:
    return list(pictures_folder(Path(setup.plain["state"])).glob("*.pictures"))


def test_a_trainer_stores_pictures_unless_the_policy_forbids_it(setup: Setup) -> None:
    first = build_learner(setup)
    assert len(stored(setup)) == 1
    second = build_learner(replace(setup, policy='{"storePictures": false}'))
    assert not pictures_folder(Path(setup.plain["state"])).exists(), "what was stored before is removed"
    assert first[1:] == second[1:]


def test_volumes_lie_in_the_state_folder_or_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "site", 2)
    model = ModelDescription.model_validate(
        {
            "network": "SmallUNet",
            "channels": 1,
            "volume": {"spacing": ("1", "1", "1"), "patch": (8, 8, 8)},
            "intensity": {"zScore": {}},
            "task": {"segmentation": {"classes": CLASSES}},
        }
    )
    method = resolve(MethodSpec(name="FedAvg"))
    server = build_server_learner(model=model, method=method, seed=5)
    section = SiloData(format="ImageFolder", claim_name="site")
    made = setup_of(tmp_path / "state", server.initialise(), "All", section, method, model)
    made = replace(made, config=json.dumps({**made.plain, "dataRoot": str(tmp_path)}))
    build_learner(made)
    folder = pictures_folder(Path(made.plain["state"]))
    assert len(list(folder.rglob("*.volume"))) == 2
    with pytest.raises(AnchorageError, match="the policy has storePictures: false") as raised:
        build_learner(replace(made, policy='{"storePictures": false}'))
    assert raised.value.redacted and not folder.exists()


def test_forget_removes_them_while_no_agent_runs(
    setup: Setup, config: SiloConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    build_learner(setup)
    with lock_state_folder(config.state), pytest.raises(AnchorageError) as raised:
        carry_out(Namespace(command="forget"), config)
    assert raised.value.failure is silo.AGENT_RUNNING and stored(setup)
    carry_out(Namespace(command="forget"), config)
    assert not pictures_folder(config.state).exists()
    assert "removed 0.0 MB" in capsys.readouterr().out


def test_forget_is_a_command_that_may_be_given_twice(
    setup: Setup, config: SiloConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_learner(setup)
    for _ in range(2):
        main(["forget", "--config", str(tmp_path / "silo.yaml")])
    assert not pictures_folder(config.state).exists() and capsys.readouterr().out.count("removed") == 2

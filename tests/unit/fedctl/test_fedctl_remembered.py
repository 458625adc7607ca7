"""What a run remembers, so that commands need not name it again: its folder and its data root."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from left_run import DOCUMENTS
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING
from anchorage.api.federation import Federation
from fedctl import local_run
from fedctl.configurations import LocalSilo, write_server_config
from fedctl.local_run import RunWatcher
from fedctl.main import app
from fedctl.workdir import Workdir

Played = list[tuple[Path, Path]]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Return the folder and the data root of each start; the server is configured, not started."""
    starts: Played = []

    def play(
        run: Workdir,
        federation: Federation,
        silos: Sequence[LocalSilo],
        root: Path,
        watcher: RunWatcher,
        fork_server: int | None,
    ) -> None:
        write_server_config(run, root, None)
        starts.append((run.root, root))

    monkeypatch.setattr(local_run, "play", play)
    monkeypatch.setattr(local_run, "shared_imports", lambda run, wanted: nullcontext())
    for folder in ("here", "documents", "data", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "documents" / "tiny.yaml").write_text(DOCUMENTS)
    monkeypatch.chdir(tmp_path / "here")
    return starts


def fedctl(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result


FILE = ("-f", "../documents/tiny.yaml")
RUN = ("run", *FILE, "--no-compare")


def test_a_run_goes_on_below_its_last_data_root(played: Played, tmp_path: Path) -> None:
    fedctl(*RUN)
    fedctl(*RUN, "--data-root", "../data")
    second = fedctl(*RUN)
    assert [root.name for _, root in played] == ["documents", "data", "data"]
    assert f"images below {tmp_path / 'data'}, as before; --data-root names another folder" in second.stderr
    fedctl(*RUN, "--data-root", "../other")
    fedctl(*RUN)
    assert [root.name for _, root in played][3:] == ["other", "other"]


def test_a_run_elsewhere_is_found_without_its_folder(played: Played, tmp_path: Path) -> None:
    fedctl(*RUN, "--workdir", "../run")
    assert f"in {tmp_path / 'run'}, as before; --workdir names another folder" in fedctl(*RUN).stderr
    assert {root for root, _ in played} == {tmp_path / "run"}
    assert "tiny" in fedctl("status").output and "tiny" in fedctl("status", "tiny").output
    fedctl(*RUN, "--workdir", "../second")
    fedctl(*RUN)
    assert [root.name for root, _ in played][2:] == ["second", "second"]


def test_a_run_that_is_there_itself_stays(played: Played, tmp_path: Path) -> None:
    fedctl(*RUN)
    fedctl(*RUN, "--workdir", "../run")
    assert "as before" not in fedctl(*RUN).stderr
    assert [root.name for root, _ in played] == ["tiny", "run", "tiny"]


def test_a_folder_that_was_removed_is_forgotten(played: Played, tmp_path: Path) -> None:
    fedctl(*RUN, "--workdir", "../run")
    (tmp_path / "run").rename(tmp_path / "away")
    fedctl(*RUN)
    assert played[-1] == (tmp_path / "here" / ".anchorage" / "tiny", tmp_path / "documents")


def test_checks_and_simulations_take_the_data_root_of_the_run(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedctl(*RUN, "--data-root", "../data")
    roots: list[Path] = []

    def check(section: object, root: Path, *_: object, **__: object) -> None:
        roots.append(root)
        raise AnchorageError(DATA_MISSING, "nothing there")

    monkeypatch.setattr("fedctl.data.check", check)
    monkeypatch.setattr("fedctl.research.partition.Pools.choose", lambda pools, *arguments: check(*arguments))
    monkeypatch.setattr("fedctl.research.simulation.local_silos", lambda study, root: check(study, root))
    for command in (("data", "check"), ("data", "partition"), ("simulate",)):
        output = CliRunner().invoke(app, [*command, *FILE])
        assert isinstance(output.exception, AnchorageError) and "images below" in output.stderr, command
        CliRunner().invoke(app, [*command, *FILE, "--data-root", "../other"])
    assert roots == [tmp_path / "data", Path("../other").resolve()] * 3

"""Each federation logs in to the chart's MLflow as itself: the operator gives its server user and password, and nobody else."""

from pathlib import Path

import pytest
from fake_api.operator_world import DERM, SETTINGS, World
from plan_world import SETTINGS as PLAN_SETTINGS
from plan_world import federation, managed, settled, world

from anchorage.transport.kube.client import ApiError
from anchorage.transport.mlflow_login import federation_password, federation_user
from anchorage_operator.reconcile import IncompleteError
from anchorage_operator.secret_facts import decode_value
from anchorage_operator.settings import OperatorSettings, TrackingLogin

URI = "http://fl-mlflow.fl.svc.cluster.local:5000"
SECRET = "derm-tracking-login"
USER = "federation.study.derm"


def with_login(settings: OperatorSettings, file: Path) -> OperatorSettings:
    return settings.model_copy(update={"tracking_uri": URI, "tracking_login": TrackingLogin(uri=URI, key=file)})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "federations-key"
    file.write_bytes(b"a key of the platform\n")
    return file


@pytest.fixture
def logging_in(key: Path) -> World:
    made = World(with_login(SETTINGS, key))
    made.federation()
    for part, name in enumerate("ab"):
        made.silo(name, part=part)
    made.settle()
    return made


def test_the_password_is_the_federation_s_own() -> None:
    assert federation_user("study", "derm") == USER
    password = federation_password(b"k", USER)
    assert password == "0c2a7fe4caa6dff506354492194cc9995b5de76d19f5daf1a8d202b8dfadb95a", (
        "as openssl dgst -hmac k has it"
    )
    assert len({password, federation_password(b"k", "federation.study.nevi"), federation_password(b"l", USER)}) == 3


def test_the_operator_writes_the_log_in_and_the_server_starts_with_it(logging_in: World) -> None:
    secret = logging_in.store.get("secrets", "study", SECRET)
    assert decode_value(secret, "MLFLOW_TRACKING_USERNAME").decode() == USER
    expected = federation_password(b"a key of the platform", USER)
    assert decode_value(secret, "MLFLOW_TRACKING_PASSWORD").decode() == expected
    assert secret["metadata"]["labels"]["anchorage.dev/federation"] == "derm"
    assert [owner["kind"] for owner in secret["metadata"]["ownerReferences"]] == ["Federation"]
    server, agent = (logging_in.store.get("statefulsets", "study", name) for name in ("derm-server", "a-silo"))
    assert SECRET in str(server["spec"]["template"]["spec"]["containers"][0]["env"])
    assert SECRET not in str(agent)
    assert expected not in str(server)
    logging_in.look()
    assert logging_in.api.writes() == [], "what is there is not written again"


def test_another_key_gives_another_password(logging_in: World, key: Path) -> None:
    key.write_bytes(b"another key")
    logging_in.clock.advance(1000)
    logging_in.settle()
    secret = logging_in.store.get("secrets", "study", SECRET)
    assert decode_value(secret, "MLFLOW_TRACKING_PASSWORD").decode() == federation_password(b"another key", USER)


def test_a_secret_of_somebody_else_is_not_overwritten(key: Path) -> None:
    made = World(with_login(SETTINGS, key))
    foreign = {"metadata": {"name": SECRET, "namespace": "study"}, "data": {}}
    made.store.create("secrets", "study", foreign)
    made.federation()
    made.resync.run()
    with pytest.raises(ApiError, match="is of no federation"):
        made.reconciler.reconcile(DERM)
    assert made.store.get("secrets", "study", SECRET)["data"] == {}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (None, True),
        (URI, True),
        (f"{URI}/", True),
        ("https://evil.example.net", False),
        ("http://fl-mlflow:5000", False),
    ],
)
def test_the_log_in_goes_to_the_chart_s_mlflow_alone(key: Path, uri: str | None, expected: bool) -> None:
    document = federation() if uri is None else federation(tracking={"uri": uri})
    settings = with_login(PLAN_SETTINGS, key)
    made = settled(world(managed("a"), federation=document, pods=()), settings=settings)[0]
    assert (SECRET in str(made.children["StatefulSet", "derm-server"])) is expected
    assert made.has_tracking_login is expected


def test_credentials_that_the_platform_names_come_first(key: Path) -> None:
    settings = with_login(PLAN_SETTINGS, key).model_copy(update={"tracking_secret": "mlflow-credentials"})
    made = settled(world(managed("a"), pods=()), settings=settings)[0]
    text = str(made.children["StatefulSet", "derm-server"])
    assert "mlflow-credentials" in text and SECRET not in text
    assert not made.has_tracking_login


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_without_a_key_no_password_is_made_and_the_federation_says_so(key: Path, content: bytes | None) -> None:
    key.unlink()
    if content is not None:
        key.write_bytes(content)
    made = World(with_login(SETTINGS, key))
    made.federation()
    made.resync.run()
    for _ in range(3):
        with pytest.raises(IncompleteError, match="the key of MLflow's log-in"):
            made.reconciler.reconcile(DERM)
    names = {each["metadata"]["name"] for plural in ("secrets", "statefulsets") for each in made.store.list(plural)}
    assert "derm-server-tls" in names, "the rest goes on"
    assert not names & {SECRET, "derm-server"}
    assert "the server waits for its log-in to MLflow: the key" in str(
        made.store.get("federations", "study", "derm")["status"]
    )

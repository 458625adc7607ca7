"""The platform's credentials for MLflow go to the platform's MLflow, whatever a Federation names."""

from pathlib import Path

import pytest
from plan_world import SETTINGS, conditions_of, federation, managed, message_of, settled, world

from anchorage.api.mistakes import DocumentError
from anchorage_operator.settings import OperatorSettings, read_settings
from anchorage_operator.tracking import is_same_site

OWN_URI = "https://mlflow.example.org/study"
SAME = [
    OWN_URI,
    f"{OWN_URI}/",
    "https://MLflow.Example.org/study",
    "https://mlflow.example.org:443/study",
    "https://mlflow.example.org./study",
    f"{OWN_URI}/below",
]
OTHER = [
    "https://evil.example.net/study",
    "https://mlflow.example.org.evil.net/study",
    "https://mlflow.example.org",
    "https://mlflow.example.org/",
    "https://mlflow.example.org/study2",
    "https://mlflow.example.org/Study",
    "https://mlflow.example.org/study/../other",
    "https://mlflow.example.org/study/./x",
    "https://mlflow.example.org/study//x",
    "https://mlflow.example.org/study/%2e%2e/other",
    "https://mlflow.example.org/study?x=/study",
    "https://mlflow.example.org/study#x",
    "https://mlflow.example.org\\.evil.net/study",
    "https://mlflow.example.org:8443/study",
    "https://mlflow.example.org:99999/study",
    "http://mlflow.example.org/study",
    "http://mlflow.example.org:443/study",
    "https://mlflow.example.org;evil.net/study",
    "https://mlflow.exam\u0440le.org/study",
    "https://[::1]/study",
    "databricks://mlflow.example.org/study",
    "https://[not-an-address/study",
    "sqlite:///mlflow.db",
    "file:/study",
]
WITH_LOGIN: OperatorSettings = SETTINGS.model_copy(update={"tracking_uri": OWN_URI, "tracking_secret": "mlflow-login"})


@pytest.mark.parametrize("uri", SAME)
def test_the_address_itself_and_what_is_below(uri: str) -> None:
    assert is_same_site(uri, OWN_URI)


@pytest.mark.parametrize("uri", OTHER)
def test_another_address(uri: str) -> None:
    assert not is_same_site(uri, OWN_URI)
    assert not is_same_site("https://mlflow.example.org/study", uri) or uri in (
        "https://mlflow.example.org",
        "https://mlflow.example.org/",
    )


def test_an_address_without_a_path_holds_every_path_of_its_host() -> None:
    assert is_same_site("http://mlflow:5000/any/path", "http://mlflow:5000")
    assert not is_same_site("http://mlflow:50001", "http://mlflow:5000")
    assert is_same_site("http://[fd00::1]:5000", "http://[FD00::1]:5000/")


@pytest.mark.parametrize(
    ("uri", "expected"), [(None, True), *((uri, True) for uri in SAME), *((uri, False) for uri in OTHER)]
)
def test_the_server_has_the_credentials_for_that_address_alone(uri: str | None, expected: bool) -> None:
    document = federation() if uri is None else federation(tracking={"uri": uri})
    made = settled(world(managed("a"), federation=document, pods=()), settings=WITH_LOGIN)[0]
    assert ("mlflow-login" in str(made.children["StatefulSet", "derm-server"])) is expected
    assert made.federation is not None
    status = made.federation["status"]
    assert conditions_of(status)["Accepted"] == ("True", "Accepted"), "the federation runs"
    assert ("spec.tracking.uri is not the platform's MLflow" in message_of(status, "Accepted")) is not expected


def test_credentials_without_an_address_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("images: {server: s, agent: a}\ntrackingSecret: mlflow-login\n")
    with pytest.raises(DocumentError, match="trackingSecret without trackingUri"):
        read_settings(file)

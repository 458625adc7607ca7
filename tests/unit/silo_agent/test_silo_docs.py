import re
from pathlib import Path

import pytest

from anchorage_silo.config import SiloConfig
from anchorage_silo.metrics import prometheus_text
from anchorage_silo.policy import Policy
from anchorage_silo.state import AgentState
from anchorage_silo.trainer_environment import CACHES

PAGE = Path(__file__).parents[3] / "docs" / "agent.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def test_every_field_is_on_the_page_with_its_default(page: str) -> None:
    described = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page.split("### Policy")[0], re.MULTILINE))
    fields = {field.alias or name: field for name, field in SiloConfig.model_fields.items()}
    assert described.keys() == fields.keys()
    for name, field in fields.items():
        assert (described[name] == "needed") is field.is_required(), name
        if isinstance(field.default, (bool, int)):
            assert described[name] == f"`{str(field.default).lower()}`", name


def test_every_field_of_a_policy_is_on_the_page(page: str) -> None:
    names = re.findall(r"^\| `(\w+)` \|", page.split("### Policy")[1].split("## From the first")[0], re.MULTILINE)
    assert names == [field.alias or name for name, field in Policy.model_fields.items()]


def test_every_figure_is_on_the_page(page: str, tmp_path: Path) -> None:
    certificate = tmp_path / "silo.crt"
    metrics = set(re.findall(r"^\| `(anchorage_silo_\w+)", page, re.MULTILINE))
    there = set(re.findall(r"^(anchorage_silo_\w+)", prometheus_text(AgentState(certificate)).decode(), re.MULTILINE))
    assert metrics == there | {"anchorage_silo_certificate_expiry_timestamp_seconds", "anchorage_silo_epsilon"}


def test_every_cache_is_on_the_page(page: str) -> None:
    assert all(f"`{name}`" in page for name in CACHES)


def test_every_page_that_is_named_is_there(page: str) -> None:
    targets = set(re.findall(r"\]\(([^)#]+)", page))
    assert targets and not [target for target in targets if not (PAGE.parent / target).exists()]

"""What the API server takes though `fedctl validate` refuses it, the operator refuses, in the same words."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from plan_world import NOW, SETTINGS, conditions_of, message_of

from anchorage_operator.observed import Observed
from anchorage_operator.plan import plan

CLUSTER_TESTS = Path(__file__).parents[2] / "cluster"
with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(CLUSTER_TESTS)
    TABLE = runpy.run_path(str(CLUSTER_TESTS / "refused_methods.py"), run_name="refused_methods")


@pytest.mark.parametrize("case", TABLE["LEFT_TO_THE_OPERATOR"], ids=lambda case: case.name)
def test_what_the_api_server_takes_is_not_accepted(case: Any) -> None:
    of_silo = case.document["kind"] == "Silo"
    federation, silos = (TABLE["ANCHORED"], {"hospital-a": stored(case.document)}) if of_silo else (case.document, {})
    planned = plan(Observed("study", "derm", stored(federation), silos), SETTINGS, NOW)
    status = planned.silo_statuses["hospital-a"] if of_silo else planned.federation_status
    assert conditions_of(status)["Accepted"] == ("False", "InvalidSpec")
    assert f"{case.path}: " in message_of(status, "Accepted")
    assert case.message in message_of(status, "Accepted")
    assert "more)" not in message_of(status, "Accepted"), "one mistake"


def stored(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**document["metadata"], "namespace": "study", "uid": "uid", "generation": 1}
    return {**document, "metadata": metadata}

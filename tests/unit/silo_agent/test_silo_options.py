"""What an agent's options are to the trainer, and to an update that was made before they changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_options import other_options
from silo_fakes import LAYOUT, setup_with

from anchorage.api.agent import TRAINS_ALIKE, SiteOptions, option_names
from anchorage.methods import PRESETS
from anchorage_silo.agent import update_terms
from anchorage_silo.config import SiloConfig
from anchorage_silo.frames import Setup
from anchorage_silo.policy import Policy
from anchorage_silo.protection import Protection

BASE: dict[str, Any] = {
    "silo": "a", "federation": "derm", "server": "s:1", "enrolment": "s:2", "authority": "ca.pem", "state": "state",
    "labels": "All", "data": {"format": "Digits"},
}  # fmt: skip
MARKED = [field.alias or name for name, field in SiloConfig.model_fields.items() if TRAINS_ALIKE in field.metadata]
OTHERWISE: dict[str, Any] = {
    "server": "t:1", "enrolment": "t:2", "authority": "other.pem", "proxy": "http://p:3128", "patienceSeconds": 7, "token": "t",
    "sharedWeights": "w", "policy": "p.yaml", "probesListen": "0.0.0.0:8080", "stay": True, "release": "BetweenRounds",
}  # fmt: skip
DP_SGD = {"epsilon": "8", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "1.2"}}


def terms(config: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> bytes:
    read = SiloConfig.model_validate_json(json.dumps({**BASE, **(config or {})}))
    rules = Policy.model_validate_json(json.dumps(policy or {}))
    return update_terms(read, rules, PRESETS["FedAvg"].slots, "run")


def test_an_update_stays_of_use_whatever_changes_but_training(tmp_path: Path) -> None:
    """A server that comes back at another address does not cost a silo's finished training."""
    assert OTHERWISE.keys() == set(MARKED)
    for name, value in OTHERWISE.items():
        assert terms({name: value}) == terms(), name
    assert terms(policy={"maximumRounds": 9, "requireApproval": True}) == terms()


@pytest.mark.parametrize("name", sorted(option_names(SiteOptions, deciding=True)))
def test_an_update_that_was_made_with_another_option_is_of_no_use(name: str) -> None:
    assert terms({name: other_options(SiteOptions)[name]}) != terms()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"relativeNoise": "0"}),
        ({}, {"clipNorm": "1"}),
        ({"noiseStd": "0.1"}, {"noiseStd": "0.2"}),
        ({"privacyBudget": DP_SGD}, {"privacyBudget": {**DP_SGD, "dpSgd": {"clipNorm": "1", "noiseMultiplier": "2"}}}),
    ],
)
def test_an_update_that_was_protected_otherwise_is_of_no_use(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert terms(policy=before) != terms(policy=after)


def test_the_trainer_gets_whole_documents(tmp_path: Path) -> None:
    options = other_options(SiteOptions)
    policy = Policy(relative_noise="0", system_metrics=True)
    setup = setup_with(tmp_path, json.dumps({"up": LAYOUT.to_json()}), policy, data={"format": "Digits"}, **options)
    read = Setup.from_json(setup.to_json())
    config = SiloConfig.model_validate_json(read.config)
    assert {name: config.model_dump(by_alias=True)[name] for name in options} == options
    assert Policy.model_validate_json(read.policy) == policy and read.protection == Protection()
    assert (read.devices, read.trains, read.folder) == (options["devices"], True, tmp_path / "trainer")

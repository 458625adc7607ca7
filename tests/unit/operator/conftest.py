"""A federation of two managed silos: as it was applied, as it was reconciled, and while it trains."""

import pytest
from fake_api.operator_world import World


@pytest.fixture
def world():
    world = World()
    world.federation()
    world.silo("a", part=0)
    world.silo("b", part=1)
    return world


@pytest.fixture
def settled(world):
    world.settle()
    return world


@pytest.fixture
def training(settled):
    settled.run_server()
    settled.connected("a", "b")
    settled.settle()
    return settled

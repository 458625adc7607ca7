"""States of a silo, as status, journal and events have them."""

from enum import StrEnum

MOST_PACKAGES = 32
"""Packages of other authors that a run uses at a silo."""


class SiloState(StrEnum):
    """What a silo does, or how its part in a round ended."""

    WAITING = "Waiting"
    """It has no task."""
    TRAINING = "Training"
    """It has a train task."""
    ANNOUNCED = "Announced"
    """Its update is made, and waits for those of the others, since weights need all announcements."""
    UPLOADING = "Uploading"
    """Its update is under way."""
    ARRIVED = "Arrived"
    """Its update is whole."""
    EVALUATING = "Evaluating"
    """It scores a model."""
    COUNTED = "Counted"
    """Its update is in the committed model, or weighs nothing there."""
    INACTIVE = "Inactive"
    """It had nothing to train on."""
    FAILED = "Failed"
    """It said that it cannot do its task, or its update cannot be used."""
    LATE = "Late"
    """Its update was not whole at the deadline."""
    ABSENT = "Absent"
    """It was not connected at the deadline."""
    REMOVED = "Removed"
    """It is no member any more."""


AT_WORK = (SiloState.TRAINING, SiloState.ANNOUNCED, SiloState.UPLOADING, SiloState.EVALUATING)
"""States of a silo that has a task."""
UNFINISHED = (SiloState.TRAINING, SiloState.ANNOUNCED, SiloState.UPLOADING)
"""States of a silo in a round from which something is still to come."""

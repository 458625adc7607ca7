"""Failures of rounds, quorum and deadlines: 30xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 5)

QUORUM_LOST = failure(
    "ANC-3001 QuorumLost",
    "Fewer silos than spec.protocol.minSilos answered before the round's deadline.",
    "Find missing or failed silos with `fedctl silos`, repair them or lower minSilos, then start the run again; it resumes.",
)
DEADLINE_EXCEEDED = failure(
    "ANC-3002 DeadlineExceeded",
    "The run took longer than spec.activeDeadlineSeconds.",
    "Raise it and start the run again; it resumes. To end here, set spec.rounds to the committed rounds.",
)
WRONG_LAYOUT = failure(
    "ANC-3003 WrongLayout",
    "A silo announced an update whose tensors do not match the run's model.",
    "Update the agent to the server's version. The update was not used.",
)
NON_FINITE_UPDATE = failure(
    "ANC-3004 NonFiniteUpdate",
    "A silo's update contains NaN or infinite numbers.",
    "Lower the learning rate or clip the gradient (spec.method.local.optimiser). The update was not used.",
)
BAD_WEIGHT = failure(
    "ANC-3005 BadWeight",
    "A silo's weight is negative or not a number.",
    "Check its sample counts and auxiliary data in `fedctl rounds -o json`. The update was not used.",
)
SILO_LATE = failure(
    "ANC-3006 SiloLate",
    "A connected silo's update was not complete at the round's deadline.",
    "Raise spec.protocol.roundDeadlineSeconds or give the silo less local work.",
)
SILO_ABSENT = failure(
    "ANC-3007 SiloAbsent",
    "A selected silo was not connected at the round's deadline.",
    "Start its agent, or read in its log why it cannot connect.",
)
STOPPED = failure(
    "ANC-3008 Stopped",
    "The run was stopped on request.",
    "Start it again with the same folder; it resumes.",
)
EVALUATION_MISSING = failure(
    "ANC-3009 EvaluationMissing",
    "No silo evaluated an update before the deadline, so it has no weight by metric.",
    "Check that the silos are connected and have validation images (spec.method.weighting.validationPercent).",
)
OUTLYING_UPDATE = failure(
    "ANC-3011 OutlyingUpdate",
    "A silo's update is many times longer than the median of its round.",
    "Find out whether its training diverged or somebody sends wrong numbers. The update was not used.",
)
UNUSABLE_ANSWER = failure(
    "ANC-3012 UnusableAnswer",
    "A silo's answer to a step of secure aggregation is invalid.",
    "Update its agent, or find out who changed it, then restart the server, which asks it again; or remove it. The run goes on while enough "
    "others remain.",
)
IMPOSSIBLE_SUM = failure(
    "ANC-3013 ImpossibleSum",
    "The sum of a round's masked updates is impossible.",
    "With at least 4 silos, and more than spec.protocol.minSilos, the run finds the silo at fault. Else remove it, and start the run again. "
    "The model is unchanged.",
)
SILO_REMOVED = failure(
    "ANC-3010 SiloRemoved",
    "A silo was removed from the federation during a round.",
    "Nothing, if this was intended. Its update of that round was not used.",
)

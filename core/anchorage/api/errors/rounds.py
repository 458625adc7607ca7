"""Failures of rounds, quorum and deadlines: 30xx."""

from anchorage.api.errors.catalogue import failure

QUORUM_LOST = failure(
    "ANC-3001",
    "QuorumLost",
    "Fewer silos than spec.protocol.minSilos answered before the round's deadline.",
    "See which silos are missing or failed with `fedctl silos`, mend them or lower minSilos, then start the run again: it resumes at the last "
    "committed round.",
    5,
)
DEADLINE_EXCEEDED = failure(
    "ANC-3002",
    "DeadlineExceeded",
    "The run took longer than spec.activeDeadlineSeconds.",
    "Raise spec.activeDeadlineSeconds and start the run again: it resumes at the last committed round.",
    5,
)
WRONG_LAYOUT = failure(
    "ANC-3003",
    "WrongLayout",
    "A silo announced an update whose tensors are not those of the run's model.",
    "Bring the silo's agent to the server's version; its update was not used.",
    5,
)
NON_FINITE_UPDATE = failure(
    "ANC-3004",
    "NonFiniteUpdate",
    "A silo's update holds NaN or infinite numbers.",
    "Lower the learning rate or clip the gradient (spec.method.local.optimiser); the silo's update was not used.",
    5,
)
BAD_WEIGHT = failure(
    "ANC-3005",
    "BadWeight",
    "A silo's announcement leads to a weight that is negative or not a number.",
    "Look at the silo's sample counts and auxiliary data in `fedctl rounds -o json`; its update was not used.",
    5,
)
SILO_LATE = failure(
    "ANC-3006",
    "SiloLate",
    "A silo was connected but its update was not whole at the round's deadline.",
    "Raise spec.protocol.roundDeadlineSeconds or give the silo less local work.",
    5,
)
SILO_ABSENT = failure(
    "ANC-3007",
    "SiloAbsent",
    "A silo was selected but not connected at the round's deadline.",
    "Start the silo's agent, or look at its log for why it cannot connect.",
    5,
)
STOPPED = failure(
    "ANC-3008",
    "Stopped",
    "The run was asked to stop.",
    "Start the run again on the same folder: it resumes at the last committed round.",
    5,
)
EVALUATION_MISSING = failure(
    "ANC-3009",
    "EvaluationMissing",
    "No silo scored any update before the deadline, so metric weights cannot be formed.",
    "See that the silos have validation images (spec.method.weighting.validationPercent) and are connected.",
    5,
)
SILO_REMOVED = failure(
    "ANC-3010",
    "SiloRemoved",
    "A silo was taken out of the federation in the middle of a round.",
    "Nothing, if that was meant: what it sent in that round was not used, the rounds before it stay as they are.",
    5,
)

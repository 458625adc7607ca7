"""Failures of the command line and the local runner: 50xx."""

from anchorage.api.errors.catalogue import failure

WORKDIR_TAKEN = failure(
    "ANC-5001",
    "WorkdirTaken",
    "The working folder holds another federation's run.",
    "Name another folder with --workdir, or remove this one if its results are no longer needed.",
    2,
)
WORKDIR_BUSY = failure(
    "ANC-5002",
    "WorkdirBusy",
    "Another run works in this folder now.",
    "Wait until it has ended or stop it; `fedctl status --watch` shows how far it is.",
    2,
)
WORKDIR_UNUSABLE = failure(
    "ANC-5003",
    "WorkdirUnusable",
    "A folder that the run needs cannot be made or written.",
    "Check the path, its permissions and the free space, or name another folder.",
    6,
)
NO_RUN_HERE = failure(
    "ANC-5004",
    "NoRunHere",
    "The folder holds no run of a federation.",
    "Name the folder of the run with --workdir; `fedctl run -f FILE` begins one in .anchorage/NAME. A federation in a cluster is "
    "found with --namespace.",
    2,
)
PROCESS_DIED = failure(
    "ANC-5005",
    "ProcessDied",
    "A process of the run ended without a reason of its own, again and again.",
    "Read the log file that the message names; running the same command again resumes at the last committed round.",
    70,
)
NO_MODEL_YET = failure(
    "ANC-5006",
    "NoModelYet",
    "The run has not committed a model yet.",
    "Wait for the first committed round; `fedctl status` shows it.",
    2,
)
SILO_NOT_LOCAL = failure(
    "ANC-5007",
    "SiloNotLocal",
    "A silo has no images on this machine, so that the local runner cannot start its agent.",
    "Add spec.managed.data to the Silo's document, or leave the document out.",
    2,
)
STATUS_UNREACHABLE = failure(
    "ANC-5008",
    "StatusUnreachable",
    "The server's status endpoint does not answer.",
    "See whether the server process lives (its log is in logs/server.log); run the command again.",
    4,
)
NO_RESULTS = failure(
    "ANC-5009",
    "NoResults",
    "The folder holds no results of a run or of a simulation that can be read.",
    "Name the working folder of a `fedctl run` or `fedctl simulate`; remove a damaged file of a seed and simulate again.",
    2,
)
NO_COMMON_METRIC = failure(
    "ANC-5010",
    "NoCommonMetric",
    "The runs have no metric in common by which they can be compared.",
    "Name a metric that all of them have with --metric; spec.evaluation makes the server score the model.",
    2,
)
PACKAGE_MISSING = failure(
    "ANC-5011",
    "PackageMissing",
    "A Python package that the command needs is not installed.",
    "Install the extra that the message names.",
    2,
)
SPEED_INVALID = failure(
    "ANC-5012",
    "SpeedInvalid",
    "A speed of simulated silos cannot be read, or no silo has it.",
    "Write --speed PATTERN=STEP or PATTERN=STEP+TRANSFER, in seconds, with a pattern that fits the name of a silo.",
    2,
)
RAY_FAILED = failure(
    "ANC-5013",
    "RayFailed",
    "The Ray cluster cannot be reached, or lost a part of the simulation.",
    "Check the address and `ray status`; machines of the cluster need the same Python, anchorage, data root and working folder. "
    "The same command goes on at the last committed round.",
    4,
)

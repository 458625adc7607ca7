"""Failures of the command line and the local runner: 50xx."""

from anchorage.api.errors.catalogue import failure

WORKDIR_TAKEN = failure(
    2,
    "ANC-5001 WorkdirTaken",
    "The working folder contains the run of another federation.",
    "Name another folder with --workdir, or remove this one.",
)
WORKDIR_BUSY = failure(
    2,
    "ANC-5002 WorkdirBusy",
    "Another run is active in this folder.",
    "Wait for it to end (`fedctl status --watch`), or stop it.",
)
WORKDIR_UNUSABLE = failure(
    6,
    "ANC-5003 WorkdirUnusable",
    "A folder of the run cannot be created or written.",
    "Check its path, permissions and free space, or name another folder.",
)
NO_RUN_HERE = failure(
    2,
    "ANC-5004 NoRunHere",
    "The folder contains no run.",
    "Name its folder with --workdir, start one with `fedctl run -f FILE`, or for a cluster add --namespace.",
)
PROCESS_DIED = failure(
    70,
    "ANC-5005 ProcessDied",
    "A process of the run repeatedly ended without an error message.",
    "Read the log file in the message. The same command resumes the run.",
)
NO_MODEL_YET = failure(
    2,
    "ANC-5006 NoModelYet",
    "The run has not committed a model yet.",
    "Wait for the first round (`fedctl status`).",
)
SILO_NOT_LOCAL = failure(
    2,
    "ANC-5007 SiloNotLocal",
    "A silo has no images on this machine.",
    "Add spec.managed.data to the Silo, or leave the Silo out.",
)
STATUS_UNREACHABLE = failure(
    4,
    "ANC-5008 StatusUnreachable",
    "The server's status endpoint does not answer.",
    "Check in logs/server.log that the server runs, then repeat the command.",
)
NO_RESULTS = failure(
    2,
    "ANC-5009 NoResults",
    "The folder contains no readable results of a run or simulation.",
    "Name the folder of a `fedctl run` or `fedctl simulate`. Delete a damaged seed's file and simulate again.",
)
NO_COMMON_METRIC = failure(
    2,
    "ANC-5010 NoCommonMetric",
    "The runs have no metric in common.",
    "Name one that all have with --metric; runs have metrics only with spec.evaluation.",
)
PACKAGE_MISSING = failure(
    2,
    "ANC-5011 PackageMissing",
    "A Python package that the command needs is not installed.",
    "Install the extra named in the message.",
)
SPEED_INVALID = failure(
    2,
    "ANC-5012 SpeedInvalid",
    "A --speed option is malformed, or its pattern matches no silo.",
    "Write --speed PATTERN=STEP or PATTERN=STEP+TRANSFER, in seconds; PATTERN matches a silo's name.",
)
RAY_FAILED = failure(
    4,
    "ANC-5013 RayFailed",
    "The Ray cluster is unreachable or lost a part of the simulation.",
    "Check the address and `ray status`; all machines need the same Python, anchorage, data root and working folder. The same command resumes.",
)
MODEL_UNUSABLE = failure(
    2,
    "ANC-5014 ModelUnusable",
    "A folder holds no usable model.",
    "Name the folder of a finished run or of `fedctl model pull`; install the packages that model.json names.",
)
MODEL_OF_OTHER_FORMAT = failure(
    2,
    "ANC-5015 ModelOfOtherFormat",
    "The model was written in another format by another version of Anchorage.",
    "Use that version or a newer one, or its weights alone (safetensors).",
)
EXPORT_FAILED = failure(
    8,
    "ANC-5016 ExportFailed",
    "The network cannot be written in this format, or does not score the same in it.",
    "Use safetensors, which always works; for other formats, control flow must not depend on an image's values.",
)
IMAGES_UNUSABLE = failure(
    3,
    "ANC-5017 ImagesUnusable",
    "Some of the images cannot be read; the others were scored.",
    "Repair or leave out the images in the messages.",
)

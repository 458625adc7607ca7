"""Failures of checkpoints, journal and spool, and of the memory that a model needs: 31xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 6)

DISK_FULL = failure(
    "ANC-3101 DiskFull",
    "The volume of the server's state folder is full.",
    "Free space or enlarge the volume, then start the run again; it resumes.",
)
NOT_WRITABLE = failure(
    "ANC-3102 StateNotWritable",
    "The server cannot write into its state folder.",
    "Check its existence, owner and permissions, and that the file system is not read-only.",
)
STORAGE_FAILED = failure(
    "ANC-3103 StorageFailed",
    "The file system reported an error.",
    "Check the system log for errors of the device, then start the run again; it resumes.",
)
STATE_IN_USE = failure(
    "ANC-3104 StateInUse",
    "Another server process is using the same state folder.",
    "Stop it, or give this run a separate folder.",
)
JOURNAL_DAMAGED = failure(
    "ANC-3105 JournalDamaged",
    "Lines of the journal are damaged or missing.",
    "Restore the state folder from a backup, or start a new run in an empty one.",
)
CHECKPOINT_DAMAGED = failure(
    "ANC-3106 CheckpointDamaged",
    "The checkpoints of the last two committed rounds are missing or damaged.",
    "Restore the file in the message from a backup, or start a new run in an empty state folder.",
)
FOREIGN_CHECKPOINT = failure(
    "ANC-3107 ForeignCheckpoint",
    "The state folder contains a run of another federation, method or model.",
    "Give this run a separate folder, or use that run's federation file.",
)
CONTRIBUTION_DAMAGED = failure(
    "ANC-3108 ContributionDamaged",
    "A silo's contribution to the asynchronous global model is missing or damaged.",
    "Restore the spool folder from a backup, or start a new run in an empty state folder.",
)
MODEL_TOO_LARGE = failure(
    "ANC-3109 ModelTooLarge",
    "The model does not fit into the server's memory.",
    "Raise spec.server.resources, or train a smaller model.",
)
TENSOR_FILE_UNUSABLE = failure(
    "ANC-3120 TensorFileUnusable",
    "A safetensors file is damaged or lacks tensors of the model.",
    "Copy or create it again, for the same model (spec.model).",
)

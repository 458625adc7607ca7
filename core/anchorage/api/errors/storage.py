"""Failures of checkpoints, journal and spool, and of the memory that a model needs: 31xx."""

from anchorage.api.errors.catalogue import failure

DISK_FULL = failure(
    "ANC-3101",
    "DiskFull",
    "There is no room left where the server keeps its state.",
    "Free space or enlarge the volume, then start the run again: it resumes at the last committed round, which is untouched.",
    6,
)
NOT_WRITABLE = failure(
    "ANC-3102",
    "StateNotWritable",
    "The server cannot write into its state folder.",
    "Check that the folder exists, who owns it, and that the file system is not mounted read-only.",
    6,
)
STORAGE_FAILED = failure(
    "ANC-3103",
    "StorageFailed",
    "The file system reported an error.",
    "Look at the machine's system log for the device, then start the run again: it resumes at the last committed round.",
    6,
)
STATE_IN_USE = failure(
    "ANC-3104",
    "StateInUse",
    "Another server process works on the same state folder.",
    "Wait until it has ended or stop it, or give this run a state folder of its own.",
    6,
)
JOURNAL_DAMAGED = failure(
    "ANC-3105",
    "JournalDamaged",
    "A line of the journal, not the last one, is not as it was written.",
    "Restore the state folder from a backup, or start anew in an empty one.",
    6,
)
CHECKPOINT_DAMAGED = failure(
    "ANC-3106",
    "CheckpointDamaged",
    "The checkpoint of the last committed round is missing or not as it was written.",
    "Restore the file from a backup. To go back one round instead, remove the last line of journal.jsonl: the round before lies beside it.",
    6,
)
FOREIGN_CHECKPOINT = failure(
    "ANC-3107",
    "ForeignCheckpoint",
    "The state folder holds another federation's, method's or model's run.",
    "Give this run a state folder of its own, or go back to the federation file that the folder was begun with.",
    6,
)
CONTRIBUTION_DAMAGED = failure(
    "ANC-3108",
    "ContributionDamaged",
    "A silo's part of the asynchronous global model is missing or not as it was written.",
    "Restore the spool folder from a backup, or start anew in an empty state folder.",
    6,
)
MODEL_TOO_LARGE = failure(
    "ANC-3109",
    "ModelTooLarge",
    "The model does not fit into the memory that the server may use.",
    "Give the server more memory (spec.server.resources) or train a smaller model.",
    6,
)
TENSOR_FILE_UNUSABLE = failure(
    "ANC-3120",
    "TensorFileUnusable",
    "A safetensors file is damaged or does not hold the tensors that are needed.",
    "Copy or make the file again; see that it was written for the same model (spec.model).",
    6,
)

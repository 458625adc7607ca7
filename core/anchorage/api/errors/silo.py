"""Failures of the agent at a hospital: 22xx."""

from anchorage.api.errors.catalogue import failure

NOT_ENROLLED = failure(
    4,
    "ANC-2201 NotEnrolled",
    "The silo has neither a valid certificate nor an enrolment token.",
    "Ask the coordinating site for a token and name its file in the agent's configuration.",
)
STATE_UNUSABLE = failure(
    6,
    "ANC-2202 StateUnusable",
    "The agent's state folder is missing, full or not writable.",
    "Check its permissions and free space; it needs room for three copies of the model.",
)
AGENT_RUNNING = failure(
    6,
    "ANC-2203 AgentRunning",
    "Another agent is using the same state folder.",
    "Stop it, or give this one a separate state folder.",
)
TRAINER_LOST = failure(
    8,
    "ANC-2204 TrainerLost",
    "The trainer process repeatedly ended during the same task.",
    "Look for the cause, such as too little memory, in the state folder's trainer.log. The agent goes on with the next task.",
)
TOO_MANY_TASKS = failure(
    5,
    "ANC-2205 TooManyTasks",
    "The server gave the silo more tasks than the agent can queue.",
    "Inform the coordinating site. The task was not done.",
)
METHOD_REFUSED = failure(
    2,
    "ANC-2210 MethodRefused",
    "The hospital's policy does not allow the federation's method.",
    "Add it to allowedMethods in the policy, or leave the federation.",
)
AUXILIARY_DATA_REFUSED = failure(
    2,
    "ANC-2211 AuxiliaryDataRefused",
    "The hospital's policy does not allow auxiliary data of the method.",
    "Add it to the policy's allowedAuxiliaryData, or choose another method. Nothing was sent.",
)
TOO_FEW_SAMPLES = failure(
    3,
    "ANC-2212 TooFewSamples",
    "A message is about fewer images than the policy's minimumSamples, or an update about fewer than 16 without a stated noise.",
    "Provide more images, or set minimumSamples, or relativeNoise if the server is trusted. Nothing was sent.",
)
ROUNDS_USED_UP = failure(
    5,
    "ANC-2213 RoundsUsedUp",
    "The silo has sent as many updates, or scored as many models, as its policy allows or the run needs; or the one that relative noise "
    "protects without an approval.",
    "If more may leave, approve the run (`anchorage-silo review`), or raise maximumRounds or maximumEvaluations in the policy. Nothing was "
    "sent.",
)
APPROVAL_NEEDED = failure(
    4,
    "ANC-2214 ApprovalNeeded",
    "The hospital's approval of what the federation does here is missing or outdated. requireApproval demands it, and relative noise over "
    "several updates.",
    "Read `anchorage-silo review --config silo.yaml`, then run the `approve` command in the message. Or set in the policy maximumRounds or, "
    'if the server is trusted, relativeNoise: "0".',
)
APPROVAL_OUTDATED = failure(
    2,
    "ANC-2215 ApprovalOutdated",
    "The digest to approve is outdated.",
    "Read `anchorage-silo review --config silo.yaml` again, and approve the digest at its end.",
)
PRIVACY_BUDGET_SPENT = failure(
    5,
    "ANC-2216 PrivacyBudgetSpent",
    "Another update would exceed the hospital's privacy budget.",
    "The hospital can raise privacyBudget.epsilon or add noise; `anchorage-silo review` shows what is spent. Nothing was sent.",
)
NOT_ACCOUNTED = failure(
    2,
    "ANC-2217 NotAccounted",
    "The hospital's privacy budget does not account for what was asked.",
    "Choose a method that only sends updates, weighted by numbers of images, such as FedAvg, without siloPercent; with dpSgd also a loss per "
    "image and batchNorm: {groupNorm: {}}. Or remove privacyBudget from the policy. Nothing was sent.",
)
ACCOUNTING_MISSING = failure(
    2,
    "ANC-2218 AccountingMissing",
    "The package that accounts for a privacy budget, or for noise at the server, is missing.",
    "Install `anchorage[agent]` at the agent, `anchorage[server]` at the server, or use the images.",
)
SECURE_AGGREGATION_REFUSED = failure(
    2,
    "ANC-2219 SecureAggregationRefused",
    "The server or a silo asked for what would undo secure aggregation, or an update does not fit into the sum.",
    "If an update is too large, lower spec.protocol.secureAggregation.fractionalBits or the learning rate. A restarted agent joins the next "
    "round. Else ask who runs the server. Nothing was sent.",
)
SECURE_AGGREGATION_MISSING = failure(
    2,
    "ANC-2224 SecureAggregationMissing",
    "The hospital's policy requires secure aggregation, and the run has none.",
    "Set spec.protocol.secureAggregation, or take requireSecureAggregation out of the policy. Nothing was sent.",
)
AUDIT_BROKEN = failure(
    6,
    "ANC-2220 AuditBroken",
    "The audit log was modified.",
    "Put back segments that were moved. Otherwise move all files audit.* away as evidence, and find out who modified them; the agent starts "
    "anew.",
)
AUDIT_UNWRITABLE = failure(
    6,
    "ANC-2221 AuditUnwritable",
    "The audit log cannot be written, so nothing is sent.",
    "Check permissions and free space of the state folder.",
)
LEDGER_BROKEN = failure(
    6,
    "ANC-2222 LedgerBroken",
    "The ledger of the privacy budget was modified.",
    "Restore privacy.jsonl, privacy.head and privacy.key from a copy made after the last update (in the audit log). Until then nothing is "
    "sent.",
)
LEDGER_UNWRITABLE = failure(
    6,
    "ANC-2223 LedgerUnwritable",
    "The ledger of the privacy budget cannot be read or written, so nothing is sent.",
    "Check permissions and free space of the folder in the message.",
)
AUDIT_ROLLED_BACK = failure(
    6,
    "ANC-2225 AuditRolledBack",
    "The audit log lacks lines that the server knows.",
    "Find out who removed or replaced it, and put back the newest audit.* before the agent's next start; it trains meanwhile.",
)
POLICY_WOULD_REFUSE = failure(
    4,
    "ANC-2226 PolicyWouldRefuse",
    "The checked policy would have refused requests in the audit log.",
    "If such messages may leave, change the policy's fields that the output names.",
)
CONFIGURED_FOR_ANOTHER = failure(
    2,
    "ANC-2227 ConfiguredForAnother",
    "The folder holds the configuration of another silo, federation or server.",
    "Name another folder with --out, or remove silo.yaml there.",
)
IMAGES_UNLABELLED = failure(
    3,
    "ANC-2230 ImagesUnlabelled",
    "The silo is configured with labels, which images lack.",
    "Set labels to None or Partial in the agent's configuration and the Silo, or label the images.",
)
FINGERPRINT_UNKNOWN = failure(
    2,
    "ANC-2231 FingerprintUnknown",
    "No image has this fingerprint, or the agent has read no images yet.",
    "Give the eight digits in brackets to the agent that wrote the message; `anchorage-silo images --config silo.yaml` lists its images.",
)

"""Failures of files, documents and cross-field rules: 10xx and 11xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 2)

FILE_UNREADABLE = failure("ANC-1001 FileUnreadable", "A file cannot be read.", "Check its path and permissions.")
NOT_YAML = failure(
    "ANC-1002 NotYaml",
    "A file is not YAML, or not UTF-8 text.",
    "Correct the line in the message, often its indentation or a colon.",
)
FILE_TOO_LARGE = failure(
    "ANC-1003 FileTooLarge",
    "A document is too large or too deeply nested.",
    "A file may have 1 MiB, 100,000 values and 32 levels of nesting.",
)
NOT_A_DOCUMENT = failure(
    "ANC-1004 NotADocument",
    "A YAML document is not a mapping with apiVersion, kind, metadata and spec.",
    "Begin each with `kind: Federation` or `kind: Silo`, and separate documents by `---`.",
)
UNKNOWN_KIND = failure(
    "ANC-1005 UnknownKind", "A document's kind is missing or unknown.", "Write `kind: Federation` or `kind: Silo`."
)
UNKNOWN_VERSION = failure(
    "ANC-1006 UnknownVersion",
    "A document's apiVersion is unknown.",
    "Write `apiVersion: anchorage.dev/v1alpha1`, or omit it.",
)
UNKNOWN_FIELD = failure(
    "ANC-1007 UnknownField",
    "A document has an unknown field.",
    "Correct its spelling, or remove it; the message lists the existing fields.",
)
MISSING_FIELD = failure(
    "ANC-1008 MissingField", "A document lacks a required field.", "Add the field named in the message."
)
WRONG_TYPE = failure(
    "ANC-1009 WrongType",
    "A field has a value of the wrong type.",
    "Use the type in the message; quote text that looks like a number or boolean.",
)
OUT_OF_RANGE = failure(
    "ANC-1010 OutOfRange", "A number, text or list is out of range.", "Choose a value within the bounds in the message."
)
UNQUOTED_DECIMAL = failure(
    "ANC-1011 UnquotedDecimal",
    "A decimal number is not quoted.",
    'Quote it, as in threshold: "0.6".',
)
UNKNOWN_CHOICE = failure(
    "ANC-1012 UnknownChoice",
    "A field's value is not one of the allowed words.",
    "Choose a word that the message lists; case matters.",
)
WRONG_FORM = failure(
    "ANC-1013 WrongForm",
    "A text does not have the form of its field.",
    "Use the form in the message.",
)
DUPLICATE_FIELD = failure(
    "ANC-1014 DuplicateField", "A mapping contains the same field twice.", "Remove one of the two fields."
)
OVERRIDE_REFUSED = failure(
    "ANC-1015 OverrideRefused",
    "An override does not have the form path=value, or its path does not exist.",
    "Write --set spec.rounds=5; lists take an index: --set spec.list.0=5.",
)
NOT_DIVISIBLE = failure(
    "ANC-1016 NotDivisible",
    "A silo cannot be multiplied: its images are not a drawn part of a pool.",
    "In spec.managed.data set use: Part and a partition that draws parts, or omit --silos.",
)
NO_FEDERATION = failure(
    "ANC-1101 NoFederation",
    "The file has no Federation.",
    "Add a document with kind: Federation, or name another file.",
)
SEVERAL_FEDERATIONS = failure(
    "ANC-1102 SeveralFederations",
    "The file has several Federations.",
    "Write one file for each Federation and its silos.",
)
DUPLICATE_NAME = failure(
    "ANC-1103 DuplicateName",
    "Two silos have the same name.",
    "Give every silo a unique metadata.name.",
)
FOREIGN_SILO = failure(
    "ANC-1104 ForeignSilo",
    "A silo belongs to another federation than the file's.",
    "Set its spec.federation to the federation's metadata.name, or move it to another file.",
)
NO_SILOS = failure("ANC-1105 NoSilos", "A federation has no silo.", "Add a document with kind: Silo.")
QUORUM_UNREACHABLE = failure(
    "ANC-1106 QuorumUnreachable",
    "A round needs more silos than can take part.",
    "Lower spec.protocol.minSilos to the number of silos and to silosPerRound, or add silos.",
)
SELECTION_TOO_LARGE = failure(
    "ANC-1107 SelectionTooLarge",
    "A round selects more silos than the federation has.",
    "Lower or omit spec.protocol.silosPerRound, or add silos.",
)
POOLS_DIFFER = failure(
    "ANC-1108 PoolsDiffer",
    "Data sections divide shared images differently, so that test images or anchors would be trained on.",
    "Set testPercent, groupBy, anchors and partition alike in all, and give every silo its own part.",
)
UNKNOWN_METHOD = failure(
    "ANC-1110 UnknownMethod",
    "No method has this name.",
    "Choose one of `fedctl methods list`, or install its package.",
)
PRESET_BROKEN = failure(
    "ANC-1111 PresetBroken",
    "An installed package fails to load, or declares an invalid method or piece.",
    "Correct or uninstall the package in the message.",
)
NO_ANCHOR_DATA = failure(
    "ANC-1112 NoAnchorData",
    "The method needs labelled anchors at the server.",
    "Add spec.anchorData, or choose a method without anchors.",
)
CLASS_WITHOUT_ANCHORS = failure(
    "ANC-1113 ClassWithoutAnchors",
    "The anchors cannot contain every class of the model.",
    "Use at least one anchor per class, or fewer classes.",
)
BARRIER_ASYNCHRONOUS = failure(
    "ANC-1114 BarrierAsynchronous",
    "The method's weights need all silos of a round; an asynchronous protocol has no rounds.",
    "Set spec.protocol.mode: Synchronous, or choose the weighting SampleCount, SelectedCount, Uniform or DVW.",
)
SERVER_TRAINING_ASYNCHRONOUS = failure(
    "ANC-1115 ServerTrainingAsynchronous",
    "The method trains at the server after each round; an asynchronous protocol has no rounds.",
    "Set spec.protocol.mode: Synchronous, or spec.method.serverTraining: {none: {}}.",
)
MEANINGLESS_OVERRIDE = failure(
    "ANC-1116 MeaninglessOverride",
    "A slot of the method has no effect or meaning beside the others.",
    "Remove it, or also set the slot in the message.",
)
LABELS_MISSING = failure(
    "ANC-1117 LabelsMissing",
    "The method needs labels, and neither a silo nor the server has any.",
    "Set spec.labels: All or Partial in a Silo with labels, or choose a method for labels at the server, such as FedAnchor.",
)
TOO_FEW_SILOS = failure(
    "ANC-1119 TooFewSilos",
    "The method needs more silos than the federation has.",
    "Add silos, or choose another weighting.",
)
PROTOCOL_REFUSED = failure(
    "ANC-1120 ProtocolRefused",
    "The method does not support this protocol.",
    "Set spec.protocol.mode to a mode in the message.",
)
POD_OVERRIDE_REFUSED = failure(
    "ANC-1131 PodOverrideRefused",
    "A document sets a field of its pods that the platform does not allow.",
    "Remove the field, or have the chart `anchorage` list it in `podOverrides`.",
)
CLAIM_REFUSED = failure(
    "ANC-1132 ClaimRefused",
    "A document names a volume claim of another federation, or of a server's or agent's state.",
    "Name a claim with this federation's images. The label `anchorage.dev/federation` reserves a claim for one federation.",
)

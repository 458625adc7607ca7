"""Failures of files, documents and cross-field rules: 10xx and 11xx."""

from anchorage.api.errors.catalogue import failure

FILE_UNREADABLE = failure(
    "ANC-1001",
    "FileUnreadable",
    "A file that was named cannot be read.",
    "Check the path and the permissions.",
    2,
)
NOT_YAML = failure(
    "ANC-1002",
    "NotYaml",
    "A file is not YAML, or not UTF-8 text.",
    "Mend the line that the message names; indentation and colons are the usual culprits.",
    2,
)
FILE_TOO_LARGE = failure(
    "ANC-1003",
    "FileTooLarge",
    "A document is larger or nested deeper than any federation needs.",
    "Name the right file; a file of documents holds at most 1 MiB and 100,000 values, nested at most 32 deep.",
    2,
)
NOT_A_DOCUMENT = failure(
    "ANC-1004",
    "NotADocument",
    "A YAML document is no mapping with apiVersion, kind, metadata and spec.",
    "Start every document with `kind: Federation` or `kind: Silo` and separate documents with `---`.",
    2,
)
UNKNOWN_KIND = failure(
    "ANC-1005",
    "UnknownKind",
    "A document's kind is missing or unknown.",
    "Write `kind: Federation` or `kind: Silo`.",
    2,
)
UNKNOWN_VERSION = failure(
    "ANC-1006",
    "UnknownVersion",
    "A document's apiVersion is unknown.",
    "Write `apiVersion: anchorage.dev/v1alpha1`, or leave it out.",
    2,
)
UNKNOWN_FIELD = failure(
    "ANC-1007",
    "UnknownField",
    "A document has a field that does not exist at this place.",
    "Mend the spelling or remove the field; the message lists the fields that exist there.",
    2,
)
MISSING_FIELD = failure(
    "ANC-1008",
    "MissingField",
    "A document lacks a field that it must have.",
    "Add the field that the message names.",
    2,
)
WRONG_TYPE = failure(
    "ANC-1009",
    "WrongType",
    "A field holds a value of another type than it takes.",
    "Write the type that the message names; names of digits or true and false must be quoted to be text.",
    2,
)
OUT_OF_RANGE = failure(
    "ANC-1010",
    "OutOfRange",
    "A number, text or list is outside its bounds.",
    "Choose a value within the bounds that the message names.",
    2,
)
UNQUOTED_DECIMAL = failure(
    "ANC-1011",
    "UnquotedDecimal",
    "A decimal number is not quoted.",
    'Put it in quotes, such as threshold: "0.6"; every reader then sees the same digits.',
    2,
)
UNKNOWN_CHOICE = failure(
    "ANC-1012",
    "UnknownChoice",
    "A field that takes one of a few words holds another one.",
    "Choose one of the words that the message lists; case matters.",
    2,
)
WRONG_FORM = failure(
    "ANC-1013",
    "WrongForm",
    "A text has not the form that its field takes.",
    "Write it in the form that the message names: names are lower-case letters, digits and dashes, paths are relative to the data root.",
    2,
)
DUPLICATE_FIELD = failure(
    "ANC-1014",
    "DuplicateField",
    "A mapping has the same field twice.",
    "Remove one of the two.",
    2,
)
OVERRIDE_REFUSED = failure(
    "ANC-1015",
    "OverrideRefused",
    "An override is not of the form path=value, or its path does not exist.",
    "Write --set spec.rounds=5; lists take an index, as in --set spec.list.0=5.",
    2,
)
NOT_DIVISIBLE = failure(
    "ANC-1016",
    "NotDivisible",
    "A silo cannot be multiplied, because its images are not a part of a pool that is drawn.",
    "Give the Silo spec.managed.data with use: Part and a partition whose recipe draws parts, or leave --silos out.",
    2,
)
NO_FEDERATION = failure(
    "ANC-1101",
    "NoFederation",
    "No document in the file is a Federation.",
    "Add a document with kind: Federation, or name the file that holds it.",
    2,
)
SEVERAL_FEDERATIONS = failure(
    "ANC-1102",
    "SeveralFederations",
    "A file holds more than one Federation.",
    "Keep one Federation and its silos per file.",
    2,
)
DUPLICATE_NAME = failure(
    "ANC-1103",
    "DuplicateName",
    "Two silos have the same name.",
    "Give every silo its own metadata.name: it is what its certificate is issued for.",
    2,
)
FOREIGN_SILO = failure(
    "ANC-1104",
    "ForeignSilo",
    "A silo belongs to another federation than the one in its file.",
    "Set the silo's spec.federation to the federation's metadata.name, or move the silo to its own file.",
    2,
)
NO_SILOS = failure(
    "ANC-1105",
    "NoSilos",
    "A federation has no silo.",
    "Add at least one document with kind: Silo to the file.",
    2,
)
QUORUM_UNREACHABLE = failure(
    "ANC-1106",
    "QuorumUnreachable",
    "A round needs more silos than can take part in it.",
    "Lower spec.protocol.minSilos to the number of silos (or of silosPerRound) at most, or add silos.",
    2,
)
SELECTION_TOO_LARGE = failure(
    "ANC-1107",
    "SelectionTooLarge",
    "A round selects more silos than the federation has.",
    "Lower spec.protocol.silosPerRound to the number of silos at most, leave it out to select all, or add silos.",
    2,
)
POOLS_DIFFER = failure(
    "ANC-1108",
    "PoolsDiffer",
    "Sections that draw from the same images do not draw alike, so test images or anchors would be trained on.",
    "Give testPercent, groupBy, anchors and partition the same values in all of them, and every silo its own part.",
    2,
)
UNKNOWN_METHOD = failure(
    "ANC-1110",
    "UnknownMethod",
    "No method has this name.",
    "Choose one of `fedctl methods list`, or install the package that brings the method.",
    2,
)
PRESET_BROKEN = failure(
    "ANC-1111",
    "PresetBroken",
    "A package declares a method that cannot be used.",
    "Mend or remove the package that the message names.",
    2,
)
NO_ANCHOR_DATA = failure(
    "ANC-1112",
    "NoAnchorData",
    "The method needs labelled anchors at the server, and the federation has none.",
    "Add spec.anchorData, or choose a method that needs no anchors.",
    2,
)
CLASS_WITHOUT_ANCHORS = failure(
    "ANC-1113",
    "ClassWithoutAnchors",
    "The anchors cannot hold every class of the model.",
    "Take at least one anchor per class (spec.anchorData), or lower spec.model.numClasses.",
    2,
)
BARRIER_ASYNCHRONOUS = failure(
    "ANC-1114",
    "BarrierAsynchronous",
    "The method's weights need every silo's announcement of a round, and an asynchronous protocol has no rounds to wait for.",
    "Set spec.protocol.mode: Synchronous, or choose the weighting SampleCount, SelectedCount, Uniform or DVW.",
    2,
)
SERVER_TRAINING_ASYNCHRONOUS = failure(
    "ANC-1115",
    "ServerTrainingAsynchronous",
    "Training at the server follows the aggregation of a round, and an asynchronous protocol has no such moment.",
    "Set spec.protocol.mode: Synchronous, or set spec.method.serverTraining: {none: {}}.",
    2,
)
MEANINGLESS_OVERRIDE = failure(
    "ANC-1116",
    "MeaninglessOverride",
    "A slot of the method is set to something that has no meaning beside the other slots.",
    "Remove the override, or set the slot that the message names as well.",
    2,
)
LABELS_MISSING = failure(
    "ANC-1117",
    "LabelsMissing",
    "The method learns from labels, and neither a silo nor the server has any.",
    "Set spec.labels: All or Partial at a silo that has labels, or choose a method with labels at the server, such as FedAnchor.",
    2,
)
TOO_FEW_SILOS = failure(
    "ANC-1119",
    "TooFewSilos",
    "The method needs more silos than the federation has.",
    "Add silos, or choose another weighting.",
    2,
)
PROTOCOL_REFUSED = failure(
    "ANC-1120",
    "ProtocolRefused",
    "The method does not run with this protocol.",
    "Set spec.protocol.mode to one that the message names.",
    2,
)

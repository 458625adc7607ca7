"""Failures of files, documents and cross-field rules: 10xx and 11xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 2)

FILE_UNREADABLE = failure("ANC-1001 FileUnreadable", "A file cannot be read.", "Check the path and the permissions.")
NOT_YAML = failure(
    "ANC-1002 NotYaml",
    "A file is not YAML, or not UTF-8 text.",
    "Correct the line in the message: most often its indentation or a colon.",
)
FILE_TOO_LARGE = failure(
    "ANC-1003 FileTooLarge",
    "A document is too large or too deeply nested.",
    "Is this the right file? A file may have 1 MiB and 100,000 values, nested 32 levels deep.",
)
NOT_A_DOCUMENT = failure(
    "ANC-1004 NotADocument",
    "A YAML document is not a mapping with apiVersion, kind, metadata and spec.",
    "Begin every document with `kind: Federation` or `kind: Silo`, and separate documents by `---`.",
)
UNKNOWN_KIND = failure(
    "ANC-1005 UnknownKind", "A document's kind is missing or unknown.", "Write `kind: Federation` or `kind: Silo`."
)
UNKNOWN_VERSION = failure(
    "ANC-1006 UnknownVersion",
    "A document's apiVersion is unknown.",
    "Write `apiVersion: anchorage.dev/v1alpha1`, or leave it out.",
)
UNKNOWN_FIELD = failure(
    "ANC-1007 UnknownField",
    "A document has an unknown field.",
    "Correct the spelling, or remove the field; the message lists the existing ones.",
)
MISSING_FIELD = failure(
    "ANC-1008 MissingField", "A document lacks a required field.", "Add the field named in the message."
)
WRONG_TYPE = failure(
    "ANC-1009 WrongType",
    "A field has a value of the wrong type.",
    "Write the type named in the message. Quote text that looks like a number or a boolean.",
)
OUT_OF_RANGE = failure(
    "ANC-1010 OutOfRange", "A number, text or list is out of range.", "Choose a value within the bounds in the message."
)
UNQUOTED_DECIMAL = failure(
    "ANC-1011 UnquotedDecimal",
    "A decimal number is not quoted.",
    'Quote it, as in threshold: "0.6", so that every program reads the same digits.',
)
UNKNOWN_CHOICE = failure(
    "ANC-1012 UnknownChoice",
    "A field's value is not one of the allowed words.",
    "Choose a word that the message lists; upper and lower case matter.",
)
WRONG_FORM = failure(
    "ANC-1013 WrongForm",
    "A text does not have the form of its field.",
    "Use the form in the message: names of lower-case letters, digits and dashes, paths relative to the data root.",
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
    "In the Silo, set spec.managed.data with use: Part and a partition whose recipe draws parts, or omit --silos.",
)
NO_FEDERATION = failure(
    "ANC-1101 NoFederation",
    "No document in the file is a Federation.",
    "Add a document with kind: Federation, or name another file.",
)
SEVERAL_FEDERATIONS = failure(
    "ANC-1102 SeveralFederations",
    "A file contains more than one Federation.",
    "Give each Federation and its silos a file of their own.",
)
DUPLICATE_NAME = failure(
    "ANC-1103 DuplicateName",
    "Two silos have the same name.",
    "Give every silo a unique metadata.name; its certificate is issued for it.",
)
FOREIGN_SILO = failure(
    "ANC-1104 ForeignSilo",
    "A silo belongs to another federation than the file's.",
    "Set the silo's spec.federation to the federation's metadata.name, or move the silo to another file.",
)
NO_SILOS = failure("ANC-1105 NoSilos", "A federation has no silo.", "Add a document with kind: Silo to the file.")
QUORUM_UNREACHABLE = failure(
    "ANC-1106 QuorumUnreachable",
    "A round needs more silos than can take part.",
    "Lower spec.protocol.minSilos to the number of silos and to silosPerRound, or add silos.",
)
SELECTION_TOO_LARGE = failure(
    "ANC-1107 SelectionTooLarge",
    "A round selects more silos than the federation has.",
    "Lower spec.protocol.silosPerRound to the number of silos, omit it to select all, or add silos.",
)
POOLS_DIFFER = failure(
    "ANC-1108 PoolsDiffer",
    "Data sections divide shared images differently, so that test images or anchors would be trained on.",
    "Set testPercent, groupBy, anchors and partition alike in all of them, and give every silo its own part.",
)
UNKNOWN_METHOD = failure(
    "ANC-1110 UnknownMethod",
    "No method has this name.",
    "Choose one of `fedctl methods list`, or install the package that provides it.",
)
PRESET_BROKEN = failure(
    "ANC-1111 PresetBroken",
    "An installed package fails to load, or declares an invalid method or piece.",
    "Correct or uninstall the package in the message. Commands such as `fedctl status` and `logs`, which read no federation file, work "
    "meanwhile.",
)
NO_ANCHOR_DATA = failure(
    "ANC-1112 NoAnchorData",
    "The method needs labelled anchors at the server.",
    "Add spec.anchorData, or choose a method without anchors.",
)
CLASS_WITHOUT_ANCHORS = failure(
    "ANC-1113 ClassWithoutAnchors",
    "The anchors cannot contain every class of the model.",
    "Use at least one anchor per class (spec.anchorData), or take classes out of spec.task.",
)
BARRIER_ASYNCHRONOUS = failure(
    "ANC-1114 BarrierAsynchronous",
    "The method's weights need the announcements of all silos of a round; an asynchronous protocol has no rounds.",
    "Set spec.protocol.mode: Synchronous, or choose the weighting SampleCount, SelectedCount, Uniform or DVW.",
)
SERVER_TRAINING_ASYNCHRONOUS = failure(
    "ANC-1115 ServerTrainingAsynchronous",
    "The method trains at the server after each round; an asynchronous protocol has no rounds.",
    "Set spec.protocol.mode: Synchronous, or spec.method.serverTraining: {none: {}}.",
)
MEANINGLESS_OVERRIDE = failure(
    "ANC-1116 MeaninglessOverride",
    "A slot of the method has a value without effect or meaning beside the other slots.",
    "Remove it, or also set the slot named in the message.",
)
LABELS_MISSING = failure(
    "ANC-1117 LabelsMissing",
    "The method needs labels, and neither a silo nor the server has any.",
    "Set spec.labels: All or Partial in a Silo that has labels, or choose a method with labels at the server, such as FedAnchor.",
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
    "A Federation or Silo sets what the platform does not let documents set in pods.",
    "Remove the field in the message, or have the chart `anchorage` list it in `podOverrides`.",
)
CLAIM_REFUSED = failure(
    "ANC-1132 ClaimRefused",
    "A Federation or Silo names a volume claim of another federation, of a server's or of an agent's state.",
    "Name a claim with this federation's images. The label `anchorage.dev/federation` reserves a claim for one federation.",
)

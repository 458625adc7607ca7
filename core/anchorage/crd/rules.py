"""Rules across the fields of an object, so that the API server refuses what `fedctl validate` refuses, with a message and the field.

They stand by the name of the type whose fields they speak of, and are those of the types' own validators, of `anchorage.api.rules`,
`anchorage.api.pools` and `anchorage.methods.checks`. What a rule says of several objects (how many silos have labels) the operator
checks, and what may change once training has begun (`anchorage.api.changes`).
"""

from collections.abc import Mapping

from anchorage.api.base import NAME_PATTERN
from anchorage.api.pod import RESERVED_PATHS
from anchorage.crd.methods import METHOD_RULES, STUDY_RULES
from anchorage.crd.rule import Rule, one_of

LONGEST_NAME = 45
"""Characters of a name: the pods, services and labels that are named after it have 63."""

NO_PARENT_FOLDER = Rule("!self.split('/').exists(part, part == '..')", "a path stays below its folder; remove ..")

_NAME = Rule(
    f"size(self.metadata.name) <= {LONGEST_NAME} && self.metadata.name.matches(r'{NAME_PATTERN}')",
    f"a name has lower-case letters, digits and dashes, at most {LONGEST_NAME}: pods and services are named after it",
    ".metadata.name",
)


def _equal(one: str, other: str) -> str:
    """Write that two fields have the same value or none; the cost of an optional value has no bound."""
    return f"(has({one}) ? has({other}) && {one} == {other} : !has({other}))"


_FILE = "self.?partition.?recipe.orValue('') == 'File'"


def _alike(field: str) -> str:
    """Write that both sections of a federation have the same value or none."""
    return _equal(f"self.anchorData.{field}", f"self.evaluation.data.{field}")


_POOL = " && ".join(map(_alike, ("format", "claimName", "path", "manifest")))
_TWO_POOLS = (
    "!has(self.anchorData) || !has(self.evaluation) || self.anchorData.use == 'All' || "
    f"self.evaluation.data.use == 'All' || !({_POOL})"
)

RULES: Mapping[str, tuple[Rule, ...]] = {
    "Federation": (_NAME,),
    "FederationSpec": (
        *STUDY_RULES,
        Rule(
            f"{_TWO_POOLS} || self.anchorData.testPercent == self.evaluation.data.testPercent",
            "anchorData and evaluation.data draw from the same images; make testPercent equal",
            ".evaluation.data.testPercent",
        ),
        Rule(
            f"{_TWO_POOLS} || {_alike('groupBy')}",
            "anchorData and evaluation.data draw from the same images; make groupBy equal",
            ".evaluation.data.groupBy",
        ),
    ),
    "MethodSpec": METHOD_RULES,
    "ModelSpec": (
        Rule(
            'self.name != "MoonCnn" || self.imageSize >= (self.augmentation == "CroppedNatural" ? 22 : 16)',
            "MoonCnn takes images of at least 16 pixels, 22 with CroppedNatural; set imageSize, or another network",
            ".imageSize",
        ),
    ),
    "Protocol": (
        Rule(
            "!has(self.silosPerRound) || self.minSilos <= self.silosPerRound",
            "minSilos is above silosPerRound, so no round could count; lower it",
            ".minSilos",
        ),
        Rule(
            "!has(self.silosPerRound) || self.mode != 'Asynchronous'",
            "an asynchronous protocol samples no silos: all train all the time; remove silosPerRound",
            ".silosPerRound",
            "FieldValueForbidden",
        ),
    ),
    "DataSection": (
        Rule(
            "self.format == 'Digits' || has(self.claimName)",
            "every format but Digits needs claimName; name the volume claim",
            ".claimName",
            "FieldValueRequired",
        ),
        Rule(
            "self.format != 'CsvManifest' || has(self.manifest)",
            "the format CsvManifest needs manifest; name the CSV file below the folder",
            ".manifest",
            "FieldValueRequired",
        ),
        Rule(
            f"self.use != 'Test' || self.testPercent > 0 || {_FILE}",
            "use Test needs testPercent; say which share of the images is the test part",
            ".testPercent",
        ),
        Rule(
            f"self.use != 'Anchors' || self.anchors > 0 || {_FILE}",
            "use Anchors needs anchors; say how many images the server has",
            ".anchors",
        ),
        Rule(
            "self.use != 'Part' || has(self.partition)",
            "use Part needs partition; say how the images are divided",
            ".partition",
            "FieldValueRequired",
        ),
        Rule(
            f"self.use != 'Part' || !has(self.partition) || {_FILE} || has(self.partition.part)",
            "use Part needs partition.part; name one from 0",
            ".partition.part",
            "FieldValueRequired",
        ),
    ),
    "Partition": (
        Rule(
            "self.recipe != 'File' || has(self.file)",
            "the recipe File needs file; name the list below the section's folder",
            ".file",
            "FieldValueRequired",
        ),
        Rule(
            "self.recipe == 'File' || has(self.parts)",
            "every recipe but File needs parts; say among how many silos the images go",
            ".parts",
            "FieldValueRequired",
        ),
        Rule(
            "self.recipe == 'File' || !has(self.part) || !has(self.parts) || self.part < self.parts",
            "part is one of 0 to parts - 1",
            ".part",
        ),
    ),
    "Service": (
        Rule(
            "self.type != 'ClusterIP' || !has(self.nodePorts)",
            "the type ClusterIP has no ports of nodes; set NodePort or LoadBalancer",
            ".nodePorts",
            "FieldValueForbidden",
        ),
    ),
    "Toleration": (
        Rule(
            "has(self.key) || self.operator == 'Exists'",
            "no key means every taint; set operator: Exists, or a key",
            ".operator",
        ),
        Rule(
            "!has(self.value) || self.operator == 'Equal'",
            "operator Exists takes no value; remove it, or set Equal",
            ".value",
            "FieldValueForbidden",
        ),
    ),
    "ClaimMount": (
        Rule(
            f"!(self.mountPath in {one_of(RESERVED_PATHS)})",
            "the operator mounts this folder itself; choose another one",
            ".mountPath",
        ),
    ),
    "Silo": (_NAME,),
    "SiloSpec": (
        Rule(
            "self.federation == oldSelf.federation",
            "a silo stays in its federation; delete it and make another one",
            ".federation",
            "FieldValueForbidden",
        ),
    ),
}

"""The few rules of the definitions: the length of a name, and a path that stays below its folder.

The schema says types, bounds and unions. What fields ask of each other, and what may change once training has begun, the operator says in the
condition Accepted, by the very code of `fedctl validate`: a rule here would say it a second time, and the API server bounds their cost.
"""

from collections.abc import Mapping

from anchorage.api.base import FEDERATION_NAME_PATTERN, NAME_PATTERN
from makers.crd.rule import Rule

LONGEST_NAME = 45
"""Characters of a name: the pods, services and labels that are named after it have 63."""

NO_PARENT_FOLDER = Rule("!('..' in self.split('/'))", "a path stays below its folder; remove ..")


def _name(pattern: str, begins: str = "") -> Rule:
    return Rule(
        f"size(self.metadata.name) <= {LONGEST_NAME} && self.metadata.name.matches(r'{pattern}')",
        f"a name has lower-case letters, digits and dashes, {begins}at most {LONGEST_NAME}: pods and services are named after it",
        ".metadata.name",
    )


RULES: Mapping[str, tuple[Rule, ...]] = {
    "Federation": (_name(FEDERATION_NAME_PATTERN, "a letter first, "),),
    "Silo": (_name(NAME_PATTERN),),
    "SiloSpec": (
        Rule(
            "self.federation == oldSelf.federation",
            "a silo stays in its federation; delete it and make another one",
            ".federation",
            "FieldValueForbidden",
        ),
    ),
}

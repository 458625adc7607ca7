"""A rule that the API server checks when an object is written."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in the Common Expression Language (CEL).

    Parameters
    ----------
    holds : str
        Expression that is true of a proper value; `self` is the value, `oldSelf` what it was before.
    message : str
        What is wrong and what to do, one line.
    field : str
        The field that is wrong, from the value on, such as ``.protocol.minSilos``; empty for the value itself.
    reason : str
        Kind of mistake, as kubectl shows it; FieldValueInvalid is the API server's own default.
    """

    holds: str
    message: str
    field: str = ""
    reason: Reason = "FieldValueInvalid"

    def as_mapping(self) -> dict[str, str]:
        """Return an item of ``x-kubernetes-validations``."""
        place = {"fieldPath": self.field} if self.field else {}
        reason = {} if self.reason == "FieldValueInvalid" else {"reason": self.reason}
        return {"rule": self.holds, "message": self.message, **place, **reason}

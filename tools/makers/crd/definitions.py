"""The definitions as a whole: names, columns, versions, and their texts as files and as templates of a Helm chart."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from anchorage.api.base import API_VERSION, Document
from anchorage.api.federation import Federation, Silo
from makers.crd.structural import described, structural

GROUP, VERSION = API_VERSION.split("/")

HEAD = "# Generated from the types of anchorage.api by `make generate`; do not edit.\n"

MOST_BYTES = 200_000
"""Of each definition; a client-side `kubectl apply` keeps an object of up to 262,144 bytes in an annotation."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`.

    Parameters
    ----------
    name, path : str
        Head, and JSON path of the value.
    type : str
        ``string``, ``integer`` or ``date``; a date is shown as the time since then.
    wide : bool
        Whether it is shown with ``-o wide`` only.
    """

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def as_mapping(self) -> dict[str, Any]:
        """Return an item of ``additionalPrinterColumns``."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, **priority, "jsonPath": self.path}


def condition(kind: str, part: str) -> str:
    """Return the JSON path of a part of the condition of a type."""
    return f".status.conditions[?(@.type=='{kind}')].{part}"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object.

    Parameters
    ----------
    kind : type
        Its document.
    plural : str
        Name in paths.
    short : tuple of str
        Short names.
    columns : tuple of Column
        What `kubectl get` shows.
    selectable : tuple of str
        JSON paths that ``--field-selector`` takes.
    """

    kind: type[Document]
    plural: str
    columns: tuple[Column, ...]
    short: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the definition."""
        return f"{self.plural}.{GROUP}"


RESOURCES = (
    Resource(
        Federation,
        "federations",
        (
            Column("Ready", condition("Ready", "status")),
            Column("Reason", condition("Ready", "reason")),
            Column("Round", ".status.round", "integer"),
            Column("Silos", ".status.silosSummary"),
            Column("Method", ".spec.method.name"),
            Column("Metric", ".status.metric"),
            _AGE,
            Column("Message", condition("Ready", "message"), wide=True),
        ),
        short=("fed",),
    ),
    Resource(
        Silo,
        "silos",
        (
            Column("Federation", ".spec.federation"),
            Column("Role", ".status.role"),
            Column("Labels", ".spec.labels"),
            Column("Ready", condition("Ready", "status")),
            Column("Reason", condition("Ready", "reason")),
            Column("Last Seen", ".status.lastSeenTime", "date"),
            Column("Samples", ".status.samples", "integer"),
            Column("Weight", ".status.weight"),
            Column("Cert Expiry", ".status.certificate.notAfter"),
            Column("Approved", condition("Approved", "status")),
            _AGE,
            Column("State", ".status.state", wide=True),
            Column("Message", condition("Ready", "message"), wide=True),
            Column("Failure", ".status.message", wide=True),
        ),
        short=("sl",),
        selectable=(".spec.federation",),
    ),
)


def definition(resource: Resource) -> dict[str, Any]:
    """Return a CustomResourceDefinition."""
    kind = resource.kind.__name__
    singular = kind.lower()
    names = {"plural": resource.plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
    short = {"shortNames": list(resource.short)} if resource.short else {}
    selectable = [{"jsonPath": path} for path in resource.selectable]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.as_mapping() for column in resource.columns],
        **({"selectableFields": selectable} if selectable else {}),
        "schema": {"openAPIV3Schema": _schema(resource.kind)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {**names, **short, "categories": ["anchorage"]},
            "versions": [version],
        },
    }


def _schema(kind: type[Document]) -> dict[str, Any]:
    schema = structural(kind)
    of = {name: described(str(field.description)) for name, field in kind.model_fields.items()}
    heads = {
        "apiVersion": {"description": of["api_version"], "type": "string"},
        "kind": {"description": of["kind"], "type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
    }
    return {**schema, "properties": {**heads, **schema["properties"]}}


def files() -> Mapping[str, str]:
    """Return the definitions as texts by the names of their files."""
    return {f"{resource.plural}.yaml": HEAD + _text(definition(resource)) for resource in RESOURCES}


def templates() -> Mapping[str, str]:
    """Return the definitions as templates of a Helm chart, whose values ``crds.enabled`` and ``crds.keep`` it asks for."""
    return {
        f"crd-{name}": HEAD
        + "{{- if .Values.crds.enabled }}\n"
        + text.removeprefix(HEAD).replace("\nspec:\n", f"\n{_KEEP}spec:\n", 1)
        + "{{- end }}\n"
        for name, text in files().items()
    }


_KEEP = """\
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


LONGEST_LINE = 9000
"""A mapping of a schema stands on one line where its JSON has fewer characters."""


class _Dumper(yaml.SafeDumper):
    """Writes what is short on one line, and everything where it stands, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(
            tag, sequence, flow_style=all(isinstance(item, (str, int)) for item in sequence)
        )

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        short = bool(mapping.keys() & {"type", "rule"}) and len(json.dumps(mapping)) < LONGEST_LINE
        return super().represent_mapping(tag, mapping, flow_style=short)


def _text(value: Mapping[str, Any]) -> str:
    """Write a definition; Helm would take two opening braces for its own."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    if "{{" in text:
        raise ValueError("a description or a rule has two opening braces, which Helm takes for its own")
    return text

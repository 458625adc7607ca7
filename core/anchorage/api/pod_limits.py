"""What documents may set in pods: a list that the platform's people keep, beside what nobody's document may set.

Whoever may create a Federation need not have any other right in the namespace. Without these limits its pods would have them: read
Secrets, mount volumes of others, run any image.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.alias_generators import to_camel

from anchorage.api.base import Document
from anchorage.api.errors.documents import CLAIM_REFUSED, POD_OVERRIDE_REFUSED
from anchorage.api.mistakes import FieldPath, Mistake
from anchorage.api.pod import ObjectName, PodOverrides, Resources

OverrideField = Literal[
    "resources",
    "resourceClaims",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "runtimeClassName",
    "sharedMemory",
    "annotations",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "labels",
    "env",
    "volumes",
    "priorityClassName",
    "schedulerName",
]
"""``resources`` beside ``pod``, and every field of ``pod``."""
AnnotationPrefix = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=253)]

FORBIDDEN_ENV_PATTERN = (
    "^(LD_|PYTHON|GLIBC_|MALLOC_|OPENSSL_|SSL_|SSLKEYLOGFILE$|CURL_CA_BUNDLE$|REQUESTS_CA_BUNDLE$|GRPC_DEFAULT_SSL_ROOTS|NETRC$"
    "|GCONV_PATH$|LOCPATH$|NLSPATH$|PATH$|HOME$|ENV$|BASH_ENV$|HOSTALIASES$|LOCALDOMAIN$|RES_OPTIONS$"
    "|CUDA_INJECTION64_PATH$|NVTX_INJECTION64_PATH$|OMP_TOOL|TORCHINDUCTOR_|TORCH_EXTENSIONS_DIR$"
    "|(?i:(http|https|all)_proxy)$"
    "|MLFLOW_(TRACKING_(URI|AUTH|INSECURE_TLS|SERVER_CERT_PATH|CLIENT_CERT_PATH|AWS_SIGV4)|REGISTRY_URI)$)"
)
"""Variables by which another program or library would be loaded, or the process would trust, or send credentials to, somebody else. RE2."""
STATE_CLAIM_PATTERN = "^state-.+-(server|silo)-[0-9]+$"
"""Names of the volume claims that hold the state of servers and agents. RE2."""


class PodOverrideLimits(Document):
    """What documents may set in the pods of servers and managed agents."""

    fields: Annotated[tuple[OverrideField, ...], Field(max_length=32)] = Field(
        (
            "resources",
            "resourceClaims",
            "nodeSelector",
            "tolerations",
            "affinity",
            "topologySpreadConstraints",
            "runtimeClassName",
            "sharedMemory",
            "annotations",
        ),
        description="Fields of `spec.server.pod` and `spec.managed.pod`, and `resources` beside them, that Federations and Silos may set. "
        "Further ones: image, imagePullPolicy, imagePullSecrets, labels, env, volumes, priorityClassName, schedulerName.",
    )
    annotation_prefixes: Annotated[tuple[AnnotationPrefix, ...], Field(max_length=64)] = Field(
        ("user.anchorage.dev/",),
        description="Beginnings of the annotations that documents may set where `fields` has annotations. Others can inject containers "
        "and Secrets, or join networks.",
    )
    secrets: Annotated[tuple[ObjectName, ...], Field(max_length=256)] = Field(
        (),
        description="Names of the Secrets that documents may name where `fields` has env or imagePullSecrets; whoever may create a "
        "Federation can read them. Empty: none.",
    )

    def mistakes(self, pod: PodOverrides, resources: Resources, place: FieldPath) -> Iterator[Mistake]:
        """Yield what a document sets in a pod and may not.

        Parameters
        ----------
        pod : PodOverrides
            As the document has it.
        resources : Resources
            As the document has them, beside the pod.
        place : FieldPath
            Where both are, such as ``("spec", "server")``.
        """
        for name in _set_fields(pod, resources):
            path = (*place, name) if name == "resources" else (*place, "pod", name)
            if name not in self.fields:
                message = "documents may not set this field here; remove it, or have the platform list it in podOverrides.fields"
                yield Mistake(POD_OVERRIDE_REFUSED, path, message)
        if "annotations" in self.fields:
            for key in pod.annotations:
                if not key.startswith(self.annotation_prefixes):
                    yield _refusal(
                        (*place, "pod", "annotations", key),
                        f"allowed are annotations that begin with {' or '.join(self.annotation_prefixes) or 'nothing'}",
                        "podOverrides.annotationPrefixes",
                    )
        for index, variable in enumerate(pod.env if "env" in self.fields else ()):
            path = (*place, "pod", "env", index)
            if re.match(FORBIDDEN_ENV_PATTERN, variable.name):
                message = f"documents may not set {variable.name}, which changes what the process loads, or whom it trusts; remove it"
                yield Mistake(POD_OVERRIDE_REFUSED, path, message)
            if variable.value_from is not None and variable.value_from.secret_key_ref.name not in self.secrets:
                secret = variable.value_from.secret_key_ref.name
                yield _refusal(path, f'documents may not read the Secret "{secret}"', "podOverrides.secrets")
        for index, secret in enumerate(pod.image_pull_secrets if "imagePullSecrets" in self.fields else ()):
            if secret not in self.secrets:
                path = (*place, "pod", "imagePullSecrets", index)
                yield _refusal(path, f'documents may not use the Secret "{secret}"', "podOverrides.secrets")

    def restrict(self, pod: PodOverrides) -> PodOverrides:
        """Return the part of a document's pod that it may set."""
        permitted_fields = {
            name: getattr(pod, name) for name in PodOverrides.model_fields if to_camel(name) in self.fields
        }
        if "annotations" in permitted_fields:
            permitted_fields["annotations"] = {
                key: value for key, value in pod.annotations.items() if key.startswith(self.annotation_prefixes)
            }
        if "env" in permitted_fields:
            permitted_fields["env"] = tuple(
                each
                for each in pod.env
                if not re.match(FORBIDDEN_ENV_PATTERN, each.name)
                and (each.value_from is None or each.value_from.secret_key_ref.name in self.secrets)
            )
        if "image_pull_secrets" in permitted_fields:
            permitted_fields["image_pull_secrets"] = tuple(
                name for name in pod.image_pull_secrets if name in self.secrets
            )
        return PodOverrides(**permitted_fields)

    def permitted_resources(self, resources: Resources) -> Resources:
        """Return a document's resources where it may set them."""
        return resources if "resources" in self.fields else Resources()


@dataclass(frozen=True)
class ClaimLimits:
    """Which volume claims of a namespace a federation's documents may name."""

    federation: str
    """The federation's name."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Federation of each claim that has the label of one, by the claim's name."""
    reserved: frozenset[str] = frozenset()
    """Claims of the platform's own, such as MLflow's."""

    def why_not(self, claim: str) -> str:
        """Say why a document may not name a claim; empty where it may."""
        if re.match(STATE_CLAIM_PATTERN, claim):
            return f"the claim \"{claim}\" has the name of a server's or an agent's state"
        if claim in self.reserved:
            return f'the claim "{claim}" is the platform\'s own'
        owner = self.owners.get(claim) or self.federation
        return f'the claim "{claim}" has the label of the federation {owner}' if owner != self.federation else ""

    def mistakes(self, claims: Mapping[FieldPath, str]) -> Iterator[Mistake]:
        """Yield the claims that a document names and may not, by the fields that name them."""
        for path, claim in claims.items():
            if why := self.why_not(claim):
                yield Mistake(CLAIM_REFUSED, path, f"{why}; name a claim of this federation's images")


def _set_fields(pod: PodOverrides, resources: Resources) -> Iterator[str]:
    if resources != Resources():
        yield "resources"
    yield from (
        to_camel(name) for name, info in PodOverrides.model_fields.items() if getattr(pod, name) != info.default
    )


def _refusal(path: FieldPath, detail: str, value: str) -> Mistake:
    return Mistake(POD_OVERRIDE_REFUSED, path, f"{detail}; remove it, or have the platform list it in {value}")

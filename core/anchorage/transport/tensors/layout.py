"""The layout of a flat buffer: which tensor lies where. The buffer is exactly the data section of a safetensors file."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from blake3 import blake3

ITEM_BYTES: Mapping[str, int] = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per element of every dtype, by its safetensors name."""

CONTROL = "control."
"""Begins the names of SCAFFOLD's control variates, one per trained tensor: they travel with a model and are no part of the network."""

PSI = "psi."
"""Begins the names of FedMatch's second parts; `psi.NAME`, with ``/`` for every dot of the tensor's name, is added to the tensor."""

LORA = "lora."
"""Begins the names of low-rank adapters: two matrices, named as the tensor that their product is added to with ``/`` for every dot."""

ADAPTER_A, ADAPTER_B, ADAPTER_SCALE = "/a", "/b", "scale"
"""Ends of the names of the two matrices ``b a``; name of the factor of all products."""

HELPER = "helper"
"""Begins the names of other silos' parts that travel behind a model to one silo (FedMatch)."""

MOMENTS = "beside.moments."
"""Begins the names of class moments of features, which are a whole update."""

AUXILIARY_PREFIXES = (HELPER, CONTROL, "beside.")
"""Begin the names of tensors that travel with a model and are no part of the network."""

SCORING = ("encoder.", "projection.", "classifier.")
"""Begin the names of the tensors that a network's scores depend on; other heads only help training."""

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last part of the names of tensors that batch normalisation counts: they are averaged, never trained."""

_SCALE, _SHIFT = "weight", "bias"
_FROZEN = "frozen"
"""Fourth item of a frozen tensor's entry in JSON."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a layout: `offset` and `nbytes` in bytes from the start of the buffer; a `frozen` one is the same in every model of a run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    frozen: bool = False


@dataclass(frozen=True)
class Layout:
    """Names, dtypes, shapes and offsets of the tensors in one flat little-endian buffer.

    Tensors lie without gaps, wider dtypes first and otherwise in the order given, so every tensor is aligned to its items and the buffer
    can be written behind a safetensors header as it is. Frozen tensors come first, then the others in the same way; those may lie askew.
    """

    tensors: tuple[TensorEntry, ...]

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, str, tuple[int, ...]]], frozen: Collection[str] = ()) -> "Layout":
        """Lay out tensors given as (name, safetensors dtype, shape); `frozen` names some of them.

        Raises
        ------
        ValueError
            A dtype is unknown, a length is negative, or a name occurs twice.
        """
        tensor_list = list(tensors)
        if len({name for name, _, _ in tensor_list}) != len(tensor_list):
            raise ValueError("a tensor's name occurs twice")
        for name, dtype, shape in tensor_list:
            if dtype not in ITEM_BYTES:
                raise ValueError(f"tensor {name} has the unknown dtype {dtype}")
            if min(shape, default=0) < 0:
                raise ValueError(f"tensor {name} has the shape {shape}")
        entries, offset = [], 0
        for name, dtype, shape in sorted(  # a stable sort keeps the given order
            tensor_list, key=lambda t: (t[0] not in frozen, -ITEM_BYTES[t[1]])
        ):
            nbytes = prod(shape) * ITEM_BYTES[dtype]
            entries.append(TensorEntry(name, dtype, tuple(shape), offset, nbytes, name in frozen))
            offset += nbytes
        return cls(tuple(entries))

    @property
    def nbytes(self) -> int:
        """Length of the buffer in bytes."""
        return self.tensors[-1].offset + self.tensors[-1].nbytes if self.tensors else 0

    @cached_property
    def front(self) -> int:
        """Length of the frozen tensors in bytes."""
        return sum(t.nbytes for t in self.tensors if t.frozen)

    @cached_property
    def trainable(self) -> "Layout":
        """Layout of the tensors that are not frozen; this one where none is."""
        return self.select(t.name for t in self.tensors if not t.frozen) if self.front else self

    def freeze(self, names: Collection[str]) -> "Layout":
        """Lay out the tensors with these of them frozen, and no others."""
        return Layout.of(((t.name, t.dtype, t.shape) for t in self.tensors), names)

    def behind(self, other: "Layout") -> "Layout":
        """Lay out these tensors behind the frozen ones of another layout."""
        front = [t for t in other.tensors if t.frozen]
        return Layout.of(((t.name, t.dtype, t.shape) for t in (*front, *self.tensors)), {t.name for t in front})

    def select(self, names: Iterable[str]) -> "Layout":
        """Lay out some of the tensors anew, in this layout's order."""
        wanted = set(names)
        chosen = [t for t in self.tensors if t.name in wanted]
        return Layout.of(((t.name, t.dtype, t.shape) for t in chosen), {t.name for t in chosen if t.frozen})

    def of_network(self) -> "Layout":
        """Lay out the network alone, none of it frozen, without what a method has travel with it."""
        return self.select(
            t.name for t in self.tensors if not t.name.startswith((*AUXILIARY_PREFIXES, PSI, LORA))
        ).freeze(())

    def to_json(self) -> str:
        """Write the layout as canonical JSON."""
        entries = [[t.name, t.dtype, list(t.shape), *([_FROZEN] if t.frozen else [])] for t in self.tensors]
        return json.dumps(entries, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Layout":
        """Read what `to_json` wrote.

        Raises
        ------
        ValueError
            The text is not such a layout.
        """
        try:
            entries = [(str(name), str(dtype), shape, rest) for name, dtype, shape, *rest in json.loads(text)]
            if any(rest not in ([], [_FROZEN]) for *_, rest in entries):
                raise ValueError("a tensor's entry is too long")
            frozen = {name for name, _, _, rest in entries if rest}
            return cls.of(((name, dtype, tuple(int(n) for n in shape)) for name, dtype, shape, _ in entries), frozen)
        except (TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a layout: {error}") from error

    @cached_property
    def digest(self) -> str:
        """BLAKE3 of the canonical JSON, hex."""
        return blake3(self.to_json().encode()).hexdigest()

    @cached_property
    def by_name(self) -> Mapping[str, TensorEntry]:
        """The entries by their names."""
        return {t.name: t for t in self.tensors}


NOTHING = Layout(())
"""No tensor at all."""


def norm_names(layout: Layout) -> frozenset[str]:
    """Return the names of all tensors of batch normalisation, learnt and counted.

    Without any they are the scales and shifts of other normalisations, such as by groups or instances: layers with one ``weight`` and one ``bias``
    for each channel.
    """
    mean, known = BUFFERS[0], layout.by_name
    layers = {t.name.removesuffix(mean) for t in layout.tensors if t.name.endswith(mean)}
    if not layers:
        scales = (t for t in layout.tensors if t.name.endswith(_SCALE) and len(t.shape) == 1)
        shifts = {t.name: known.get(f"{t.name.removesuffix(_SCALE)}{_SHIFT}") for t in scales}
        layers = {name.removesuffix(_SCALE) for name, t in shifts.items() if t and t.shape == known[name].shape}
    return frozenset(t.name for t in layout.tensors if t.name[: t.name.rfind(".") + 1] in layers)

"""Silos in the test's own process that speak the real protocol with real certificates, and do not all behave."""

import threading

import numpy as np
from federation_in_process import null_step
from federation_processes import Site

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.messages import Announcement, Assigned, Finished, Order, Permit, Profile, Task
from anchorage.transport.pki import Credentials, SigningRequest, new_key, silo_uri
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description
from anchorage.transport.tensors.spool import MemorySpool


def credentials_of(site: Site, silo: str) -> Credentials:
    """Return a silo's own key with a certificate of the federation's authority."""
    folder = site.root / "silos" / silo
    folder.mkdir(parents=True)
    credentials = Credentials(folder / "silo.key", folder / "silo.crt", site.authority.certificate_path)
    request = SigningRequest.make(new_key(credentials.key), silo_uri(site.federation, silo))
    credentials.save_certificate(site.authority.issue_silo(request, silo))
    return credentials


class OddSilo(threading.Thread):
    """A silo that trains like a null trainer; what it then says depends on its `kind`.

    ``honest``; ``silent`` never answers; ``nan`` sends one NaN; ``layout`` announces another tensor; ``count`` says that it has -1 images;
    ``liar`` sends other bytes than it announced; ``fails`` says that it cannot.
    """

    def __init__(self, site: Site, silo: str, kind: str) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.refusals: list[str] = []
        self._step, self._samples = null_step(silo)
        self._credentials = credentials_of(site, silo)
        self._layout, _ = read_description(site.root / "initial.safetensors")
        self._updates: dict[str, ModelBytes] = {}

    def connect(self, server: str) -> None:
        """Join the run at this address."""
        profile = Profile("All", self._samples, "odd")
        self._link = GrpcServerLink(server=server, credentials=self._credentials, profile=profile)
        self.start()

    def run(self) -> None:
        while (order := self._link.next_order(None)) is not None and not isinstance(order, Finished):
            try:
                self._follow(order)
            except AnchorageError as error:
                self.refusals.append(error.code)
        self._link.close()

    def _follow(self, order: Order) -> None:
        match order:
            case Assigned(task) if self.kind == "fails":
                self._link.fail(task.id, "ANC-1301", "loss is nan")
            case Assigned(task) if self.kind != "silent":
                self._train(task)
            case Permit(task):
                self._link.push(task, Lie(self._updates[task]) if self.kind == "liar" else self._updates[task])

    def _train(self, task: Task) -> None:
        sink = MemorySpool(task.model)
        self._link.fetch(task.model, sink)
        model = ModelBytes(self._layout, (sink.chunk(i) for i in range(len(task.model.digests))))
        floats = np.float32(self._step)
        arrays = {name: a + floats if a.dtype == np.float32 else a for name, a in model.arrays().items()}
        if self.kind == "nan":
            arrays["classifier.bias"][1] = np.nan
        layout = self._layout
        if self.kind == "layout":
            layout = Layout.of([("encoder.weight", "F32", (4,))])
            arrays = {"encoder.weight": np.zeros(4, np.float32)}
        self._updates[task.id] = update = ModelBytes.from_arrays(layout, arrays)
        samples = -1 if self.kind == "count" else self._samples
        self._link.announce(Announcement(task.id, {"train": samples}, {}, {}, update.manifest))

    def close(self) -> None:
        if self.is_alive():
            self._link.close()
            self.join(120)


class Lie:
    """Other bytes under an update's name."""

    def __init__(self, update: ModelBytes) -> None:
        self.manifest: Manifest = update.manifest
        self._update = update

    def chunk(self, index: int) -> bytes:
        """Return as many zeros."""
        return bytes(len(self._update.chunk(index)))

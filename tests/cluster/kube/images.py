"""Images without a registry: a root file system packed as an archive that containerd imports."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kube.commands import run
from kube.components import cache_folder, locked

PACKAGES = ("python3", "ca-certificates")
UNUSED = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists")
SUITE = "bookworm"
SUITE_PYTHON = (3, 11)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """A name for a root file system, and what runs in it."""

    tag: str
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def config(self, layer: str) -> bytes:
        """Return the image's configuration over the one layer with this SHA-256."""
        variables = {"PATH": PATH, **self.environment}
        document = {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Env": [f"{name}={value}" for name, value in variables.items()],
            },
        }
        return json.dumps(document).encode()


def pack(root: Path, images: Sequence[Image], archive: Path) -> None:
    """Write an archive (docker's layout) with every file under `root` as the one layer that all the images share."""
    layer_file = archive.with_suffix(".layer")
    with tarfile.open(layer_file, "w") as layer:
        for path in sorted(root.iterdir()):
            layer.add(path, arcname=path.name)
    with layer_file.open("rb") as raw:
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
    manifest = []
    with tarfile.open(archive, "w") as tar:
        for image in images:
            config = image.config(digest)
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add_bytes(tar, name, config)
            manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": [f"{digest}/layer.tar"]})
        tar.add(layer_file, arcname=f"{digest}/layer.tar")
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())
    layer_file.unlink()


def _add_bytes(tar: tarfile.TarFile, name: str, body: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(body)
    tar.addfile(entry, io.BytesIO(body))


def pause_archive(pause: Path) -> Path:
    """Return an archive with the image in which every pod's namespaces are held."""
    archive = pause.with_name("pause.tar")
    with locked(cache_folder() / "images.lock"):
        if not archive.exists():
            root = pause.with_name("pause-root")
            root.mkdir(exist_ok=True)
            shutil.copy2(pause, root / "pause")
            pack(root, [Image(PAUSE, ["/pause"])], archive)
            shutil.rmtree(root)
    return archive


PAUSE = "localhost/pause:1"


def python_archive(images: Sequence[Image]) -> Path:
    """
    Return an archive with `images` over a small Debian with Python; made where the cache has none (a minute, the first time).

    Raises
    ------
    CommandFailed
        debootstrap could not fetch Debian's packages.
    """
    recipe = json.dumps([SUITE, PACKAGES, [image.config("").decode() for image in images], [i.tag for i in images]])
    archive = cache_folder() / f"python-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    with locked(cache_folder() / "images.lock"):
        root = cache_folder() / f"root-{SUITE}"
        if not root.exists():
            unfinished = root.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            include = f"--include={','.join(PACKAGES)}"
            command = ("debootstrap", "--variant=minbase", include, SUITE, unfinished)
            # in mounts of its own: killed, it would leave /proc mounted in there, and every later try would fail
            run("unshare", "--mount", *command, seconds=900)
            for folder in UNUSED:
                shutil.rmtree(unfinished / folder, ignore_errors=True)
            unfinished.rename(root)
        if not archive.exists():
            unpacked = archive.with_suffix(".unfinished")
            pack(root, images, unpacked)
            unpacked.rename(archive)
    return archive

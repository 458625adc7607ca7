"""Fetches the scripts that the documentation site and its test need: ``python tools/docs_site/npm_files.py``. They are in no Python package.

npm fetches each package; it is compared with the digest below, and one file of it goes into the virtual environment.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(sys.prefix) / "share" / "anchorage-site"


@dataclass(frozen=True)
class NpmFile:
    """One file of a package of the npm registry.

    Parameters
    ----------
    package, version : str
        As npm names them.
    integrity : str
        SHA-512 of the package's archive, as npm and lock files write it.
    member : str
        Path of the file in the archive.
    """

    package: str
    version: str
    integrity: str
    member: str

    @property
    def path(self) -> Path:
        """Where the file is once it is fetched."""
        return FOLDER / f"{self.package}-{self.version}.js"


MERMAID = NpmFile(
    "mermaid",
    "11.17.2",
    "sha512-V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg==",
    "package/dist/mermaid.min.js",
)
IFRAME_WORKER = NpmFile(
    "iframe-worker",
    "1.0.4",
    "sha512-roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
    "package/shim/index.js",
)
AXE = NpmFile(
    "axe-core",
    "4.14.1",
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    "package/axe.min.js",
)
SITE_FILES = (MERMAID, IFRAME_WORKER)
"""What the site consists of beside the theme: diagrams, and search in pages that are opened without a server."""


def fetch(file: NpmFile) -> None:
    """Fetch a file unless it is there.

    Raises
    ------
    ValueError
        The archive has another digest than expected.
    OSError, subprocess.CalledProcessError
        npm is missing or failed.
    """
    if file.path.exists():
        return
    with tempfile.TemporaryDirectory(prefix="anchorage-npm-") as folder:
        command = ["npm", "pack", "--json", "--pack-destination", folder, f"{file.package}@{file.version}"]
        packed = subprocess.run(command, capture_output=True, text=True, check=True)
        archive = Path(folder) / json.loads(packed.stdout)[0]["filename"]
        digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != file.integrity:
            raise ValueError(f"{file.package} {file.version} has the digest {digest}, expected {file.integrity}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as members:
            content = members.extractfile(file.member)
            assert content is not None, f"{file.member} is not a file"
            file.path.write_bytes(content.read())


def main() -> None:
    """Fetch all files."""
    if shutil.which("npm") is None:
        sys.exit("needs npm (Debian: apt-get install npm)")
    for file in (*SITE_FILES, AXE):
        fetch(file)


if __name__ == "__main__":
    main()

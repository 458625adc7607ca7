"""The package of another author that docs/writing-a-decoder.md describes: its files are taken from the guide as they stand."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-decoder.md"


def lay_out(folder: Path) -> None:
    """Lay the package out in a folder as `pip` would."""
    (module,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (project,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    entries = project.partition('entry-points."anchorage.decoders"]\n')[2].replace('"', "")
    (folder / "acme_images").mkdir()
    (folder / "acme_images" / "__init__.py").touch()
    (folder / "acme_images" / "npy.py").write_text(module)
    metadata = folder / "acme_images-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-images\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[anchorage.decoders]\n{entries}")

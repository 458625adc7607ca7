"""A program that decodes JPEG frames by GDCM, which ends its process on some damaged ones. Imports nothing of this project.

Each request is a line of JSON and the frame's bytes; the answer is the number of decoded bytes in 8 bytes, and these. It ends with its input.
"""

import json
import resource
import sys
from typing import Any

import gdcm

MEMORY = 2 * 2**30
"""Most bytes of address space: enough for the largest frame, several times."""


def decode(coded: bytes, request: dict[str, Any]) -> bytes:
    """Return the pixels of a frame; nothing where GDCM says that it cannot decode it."""
    fragment = gdcm.Fragment()
    fragment.SetByteStringValue(coded)
    fragments = gdcm.SequenceOfFragments.New()
    fragments.AddFragment(fragment)
    element = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
    element.SetValue(fragments.__ref__())
    image = gdcm.Image()
    image.SetNumberOfDimensions(2)
    image.SetDimensions((request["columns"], request["rows"], 1))
    image.SetDataElement(element)
    colours = gdcm.PhotometricInterpretation.GetPIType(request["photometric"])
    image.SetPhotometricInterpretation(gdcm.PhotometricInterpretation(colours))
    if request["samples"] > 1:
        image.SetPlanarConfiguration(0)
    image.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(request["syntax"])))
    stored = request["stored"]
    image.SetPixelFormat(
        gdcm.PixelFormat(request["samples"], request["allocated"], stored, stored - 1, request["signed"])
    )
    pixels: bytes = image.GetBuffer().encode("utf-8", "surrogateescape")  # GDCM's bytes come as text
    return pixels


def main() -> None:
    """Answer requests."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for switch in (gdcm.Trace.WarningOff, gdcm.Trace.ErrorOff, gdcm.Trace.DebugOff):
        switch()
    while line := sys.stdin.buffer.readline(4096):
        request = json.loads(line)
        pixels = decode(sys.stdin.buffer.read(request["nbytes"]), request)
        sys.stdout.buffer.write(len(pixels).to_bytes(8, "little") + pixels)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

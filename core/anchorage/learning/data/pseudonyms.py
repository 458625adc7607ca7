"""What a site's images are called in what leaves it: by their place and a keyed fingerprint, which the site alone can resolve.

Names of files, folders and patients, labels that are no classes, and whatever a library says of a file are personal data: they stay at the site, and
are remembered here for the file in which people look them up.
"""

import hmac
from dataclasses import dataclass

from anchorage.learning.data.listing import REASONS, BadImage

FINGERPRINT_DIGITS = 8
MOST_IMAGES = 10_000
"""Images that are remembered; a site with more has another problem than the 10,001st."""
_LONGEST_NAME, _LONGEST_DETAIL = 1024, 500


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image that is, or may be, spoken of, and what its fingerprint stands for."""

    fingerprint: str
    """First hexadecimal digits of HMAC-SHA256 of its name, by the site's key."""
    place: int
    """Its number in the listing, from 1."""
    of: int
    """Images of the listing."""
    id: str
    """Its name in the listing, such as its path in the section's folder."""
    reason: str
    """Why it is spoken of: one of `REASONS`, or what training does with it."""
    detail: str
    """What was found."""


class Pseudonyms:
    """Names of images for messages and logs that leave a site.

    Parameters
    ----------
    key : bytes
        The site's own, of 32 bytes; it never leaves.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.images: list[KnownImage] = []
        """The images that can be resolved, at most `MOST_IMAGES`."""
        self.remarks: list[str] = []
        """What is known of the images that names some of them, a sentence each."""

    def remember(self, image: BadImage, row: int, count: int) -> None:
        """Note what the fingerprint of an image stands for; `row` is its place from 0 among `count`."""
        if len(self.images) < MOST_IMAGES:
            name, detail = image.id[:_LONGEST_NAME], image.detail[:_LONGEST_DETAIL]
            known_image = KnownImage(self._fingerprint(image.id), row + 1, count, name, image.reason, detail)
            self.images.append(known_image)

    def name(self, id: str, row: int, count: int) -> str:
        """Return what to call an image, such as ``image 17 of 812 (3f2a91c0)``."""
        return f"image {row + 1} of {count} ({self._fingerprint(id)})"

    def name_bad(self, image: BadImage, row: int, count: int) -> str:
        """Return what to call an image that cannot be used, with its reason in words of this project alone."""
        return f"{self.name(image.id, row, count)} {known_reason(image.reason)}"

    def digest(self, name: str) -> str:
        """Return HMAC-SHA256 of a name, of an image or a patient, in 64 hexadecimal digits, of which the fingerprint is the beginning."""
        return hmac.digest(self._key, name.encode(errors="surrogateescape"), "sha256").hex()

    def _fingerprint(self, id: str) -> str:
        return self.digest(id)[:FINGERPRINT_DIGITS]


def known_reason(reason: str) -> str:
    """Return a reason with its sentence; of a reason that another package made up nothing is said."""
    return f"{reason}: {REASONS[reason]}" if reason in REASONS else "is refused by its decoder"

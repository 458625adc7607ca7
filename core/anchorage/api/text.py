"""Text of another party, made safe to show."""


def printable(text: str) -> str:
    """Return text with spaces in the place of line ends, tabs, escape sequences' beginnings and other characters that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)

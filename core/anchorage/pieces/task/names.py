"""Names of a task's outputs, such as classes: each once, and told apart by people."""

import unicodedata


def distinct(names: tuple[str, ...], least: int, one: str, several: str) -> tuple[str, ...]:
    """Return names that differ, also to people, of which there are at least so many.

    Parameters
    ----------
    names : tuple of str
        As a document has them.
    least : int
        How many are needed.
    one, several : str
        What a name is of, such as ``class`` and ``classes``.

    Raises
    ------
    ValueError
        They are too few, or two are alike.
    """
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"found {', '.join(twice)} more than once; give every {one} a name of its own")
    spelt: dict[str, str] = {}
    for name in names:
        other = spelt.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
        if other != name:
            raise ValueError(
                f"found {other!a} and {name!a}, which people read as one {one}; give every {one} a name of its own"
            )
    if len(names) < least:
        needed = f"{least} {several if least > 1 else one}"
        raise ValueError(f"found {', '.join(names) or f'no {one}'}, allowed are at least {needed}")
    return names

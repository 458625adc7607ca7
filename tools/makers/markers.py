"""Pages of which a part is made and the rest is written by hand."""


def replace_between(page: str, begin: str, end: str, text: str) -> str:
    """Return a page with another text between its two marks.

    Raises
    ------
    ValueError
        The page has not each mark once, in their order.
    """
    before, opened, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed or begin in rest or end in before + after:
        raise ValueError(f"the page must have the lines {begin} and {end} once each")
    return f"{before}{begin}\n\n{text}\n{end}{after}"

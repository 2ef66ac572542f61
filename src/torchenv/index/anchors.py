"""The links of an HTML page, as a browser would read them."""

from __future__ import annotations

import re
from html.parser import HTMLParser


def read_anchors(text: str) -> AnchorPage:
    """Read the links of a page with all their attributes."""
    page = AnchorPage()
    page.feed(text)
    page.close()
    return page


class AnchorPage(HTMLParser):
    """A page while it is read, and what was found then.

    `base` is what its links start from, if it says so; `is_index` whether it calls itself a list of files:
    an index may list none.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.anchors: list[dict[str, str]] = []
        self.base: str | None = None
        self.is_index = False
        self._heading = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.anchors.append(given)
        elif tag == "base" and self.base is None:
            self.base = given.get("href") or None
        elif tag == "meta" and given.get("name", "").startswith("pypi:"):
            self.is_index = True
        self._heading = tag if tag in {"title", "h1"} else ""

    def handle_data(self, data: str) -> None:
        # <h1>Links for torch</h1>, <title>Simple index</title>
        if self._heading and re.search(r"(?i)\blinks for\b|\bsimple index\b", data):
            self.is_index = True

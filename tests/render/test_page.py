"""The page shows every save of every run, trusts no word from outside, and works without a mouse."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torchenv.audit import AuditReport, Finding, Severity, Unread
from torchenv.environment.base_python import BasePython
from torchenv.render.page import STATES, Mark, Timeline, render_page
from torchenv.render.report import ReportData
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Proof, Run

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
START = 1_790_000_000.0


def timeline(path: str, saves: int, *, apart: float = 3600.0) -> Timeline:
    verdicts = ["readable", "downgradable", "unreadable", "readable-with-code", "unknown"]
    marks = [
        Mark(
            path=f"{path}/step-{step}",
            at=START + step * apart,
            by={1: verdicts[step % 5], 2: "readable"},
            state="incomplete" if step == saves - 1 else None,
            kept=step == 2,
            why="shard 3 of 8 does not exist" if step == saves - 1 else "",
        )
        for step in range(saves)
    ]
    return Timeline(path=path, marks=tuple(marks))


class Tags(HTMLParser):
    """Collects the tags of a page, those that stay open, and its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in {"meta", "link", "img", "br"}:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(standing: ReportData) -> None:
    page = render_page(standing, ())
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.addresses) == ([], ["#picture"])
    assert tags.seen.isdisjoint({"link", "img", "iframe"})
    assert not re.search(r"url\(|@import|https?:", page)
    assert '<td class="good short">proven</td>' in page


def test_no_word_from_outside_becomes_part_of_the_page(standing: ReportData) -> None:
    bad = "<script>alert('x')</script>&\""
    manifest, new = Manifest().begin(
        "a", within=Path(bad), python=BasePython(bad, bad), at=NOW, torch=bad, reads=bad
    )
    manifest, _ = manifest.commit(new)
    proof = Proof(at=NOW, passed=False, what=bad, host=bad, devices=(bad,), git=bad, said=(bad,))
    manifest = manifest.record_check(1, proof).record_runs([Run(path=bad, newest=bad)])
    audit = AuditReport(
        release=bad,
        files=1,
        findings=(
            Finding(path=bad, line=1, column=1, rule=bad, severity=Severity.ERROR, why=bad, remedy=bad),
        ),
        unread=(Unread(bad, bad),),
    )
    mark = Mark(path=bad, at=START, by={1: "readable"}, why=bad)
    lines = (Timeline(path=bad, marks=(mark,)),)
    page = render_page(replace(standing, root=bad, manifest=manifest, audit=audit), lines, (bad,))
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;" in page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data)["runs"][0]["path"] == bad


def test_what_needs_attention_comes_first(standing: ReportData) -> None:
    page = render_page(standing, (), ("driver 550 is too old",))
    assert page.index("driver 550 is too old") < page.index("Checkpoints")
    assert "Nothing needs attention." in render_page(standing, ())


def test_the_rollback_target_is_whose_eyes_the_picture_is_seen_with(standing: ReportData) -> None:
    previous = standing.manifest.number(1)
    page = render_page(replace(standing, previous=previous), (timeline("runs/a", 5),))
    assert '<option value="1" selected>' in page
    assert "1 (2.14.1-cu126-py3.12) (previous)" in page


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not installed")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def opened(browser: Chrome, folder: Path, page: str) -> Chrome:
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def ask(browser: Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


def test_all_of_five_thousand_saves_are_drawn_and_reached_by_keys(
    browser: Chrome, standing: ReportData, tmp_path: Path
) -> None:
    from selenium.webdriver.common.keys import Keys

    lines = tuple(timeline(f"runs/{name}", 500) for name in "abcdefghij")
    opened(browser, tmp_path, render_page(standing, lines))
    assert ask(browser, "document.querySelectorAll('.lane .mark[data-n]').length") == 5000
    assert ask(browser, "document.getElementById('sum').textContent") == "5000 of 5000 saves in 10 of 10 runs"
    lane = browser.find_elements("css selector", ".lane")[0]
    lane.send_keys(Keys.HOME)
    assert "runs/a/step-0 ·" in browser.find_elements("css selector", ".detail")[0].text
    lane.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    detail = browser.find_elements("css selector", ".detail")[0].text
    assert detail == "runs/a/step-2 · 2026-09-21 16:13 UTC · readable, kept as a lifeboat"
    lane.send_keys(Keys.END)
    assert "shard 3 of 8 does not exist" in browser.find_elements("css selector", ".detail")[0].text
    gaps = ask(
        browser,
        "[...document.querySelectorAll('.lane')[0].querySelectorAll('.mark[data-n]')]"
        ".map((m) => +m.getAttribute('transform').match(/[0-9.]+/)[0])",
    )
    assert min(after - before for before, after in pairwise(gaps)) >= 9
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_the_filters_choose_run_state_and_environment(
    browser: Chrome, standing: ReportData, tmp_path: Path
) -> None:
    from selenium.webdriver.support.select import Select

    lines = (timeline("runs/a", 10), timeline("runs/b", 10))
    opened(browser, tmp_path, render_page(replace(standing, previous=standing.manifest.number(1)), lines))
    browser.find_element("id", "run-filter").send_keys("b")
    assert ask(browser, "document.getElementById('sum').textContent") == "10 of 20 saves in 1 of 2 runs"
    Select(browser.find_element("id", "state")).select_by_value("unreadable")
    assert ask(browser, "document.getElementById('sum').textContent") == "2 of 20 saves in 1 of 2 runs"
    Select(browser.find_element("id", "environment")).select_by_value("2")
    assert ask(browser, "document.getElementById('sum').textContent") == "0 of 20 saves in 0 of 2 runs"
    Select(browser.find_element("id", "state")).select_by_value("kept")
    assert ask(browser, "document.getElementById('sum').textContent") == "1 of 20 saves in 1 of 2 runs"


def test_every_kind_of_mark_has_its_shape_and_a_word_in_the_legend(
    browser: Chrome, standing: ReportData, tmp_path: Path
) -> None:
    opened(browser, tmp_path, render_page(standing, (timeline("runs/a", 10),)))
    assert ask(browser, "[...document.querySelectorAll('.legend li')].map((l) => l.innerText.trim())") == [
        *STATES.values()
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(browser: Chrome, standing: ReportData, tmp_path: Path, *, dark: bool) -> None:
    import axe_core_python

    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    opened(browser, tmp_path, render_page(standing, (timeline("runs/a", 40),), ("a driver is too old",)))
    (folder,) = axe_core_python.__path__
    browser.execute_script((Path(folder) / "axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[0])")
    problems = [(violation["id"], violation["nodes"][0]["html"]) for violation in found["violations"]]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert problems == []


def test_a_narrow_screen_scrolls_no_page_sideways(
    browser: Chrome, standing: ReportData, tmp_path: Path
) -> None:
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, tmp_path, render_page(standing, (timeline("runs/a", 200),)))
        assert ask(browser, "document.documentElement.scrollWidth") <= 400
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

"""The report page in Chromium: silent, offline, drawn, reachable by keyboard, accessible, savable."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

KINDS = ("made", "real", "two", "ladder", "hostile")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["phone", "laptop"])
def test_it_is_silent_asks_for_nothing_and_fits(
    pages: dict[str, Path], open_page: Callable[..., Any], kind: str, size: str
) -> None:
    opened = open_page(pages[kind], size)
    assert opened.said == []
    assert opened.asked == [pages[kind].as_uri()]
    assert "taken" not in opened.page.title()
    assert opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["phone", "laptop"])
def test_every_chart_is_drawn_once_with_marks_in_sight(
    pages: dict[str, Path], open_page: Callable[..., Any], kind: str, size: str
) -> None:
    page = open_page(pages[kind], size).page
    drawn = page.evaluate(
        """[...document.querySelectorAll("figure")].map((figure) => {
            const shown = [...figure.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0);
            const marks = shown.flatMap((svg) => [...svg.querySelectorAll("path, rect, line")]);
            const box = shown.length ? shown[0].getBoundingClientRect() : null;
            const inside = marks.filter((mark) => {
                const r = mark.getBoundingClientRect();
                return r.right <= box.right + 1 && r.left >= box.left - 1 && r.width + r.height > 0;
            });
            return [figure.id, shown.length, inside.length, marks.length];
        })"""
    )
    assert drawn
    for name, shown, inside, marks in drawn:
        assert shown == 1, name
        assert inside >= 3, name
        assert inside >= 0.95 * marks, name


def test_text_of_charts_stays_inside_them(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    for size in ("phone", "laptop"):
        page = open_page(pages["real"], size).page
        out = page.evaluate(
            """[...document.querySelectorAll("figure svg")].filter((svg) => svg.getBoundingClientRect().width > 0)
            .flatMap((svg) => {
                const box = svg.getBoundingClientRect();
                return [...svg.querySelectorAll("text")].filter((text) => {
                    const r = text.getBoundingClientRect();
                    return r.left < box.left - 2 || r.right > box.right + 2;
                }).map((text) => `${svg.closest("figure").id}: ${text.textContent}`);
            })"""
        )
        assert out == []


def test_worst_stalls_have_pictures(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    page = open_page(pages["made"]).page
    stalls = page.locator("#stalls section")
    assert stalls.count() >= 3
    for i in range(stalls.count()):
        assert stalls.nth(i).locator(".wide svg").count() == 1
        assert "live stream" in stalls.nth(i).inner_text()
        assert "This gap, as charged" in stalls.nth(i).locator(".wide svg").evaluate("(svg) => svg.textContent")


@pytest.mark.parametrize("size", ["phone", "laptop"])
def test_the_keyboard_reaches_everything(pages: dict[str, Path], open_page: Callable[..., Any], size: str) -> None:
    page = open_page(pages["made"], size).page
    wanted = page.evaluate(
        """[...document.querySelectorAll("a[href], button, summary, [tabindex='0']")]
        .filter((one) => one.checkVisibility()).length"""
    )
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """(() => {
                const one = document.activeElement;
                if (one === document.body) return null;
                const ring = getComputedStyle(one).outlineStyle;
                const all = [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")];
                return [all.indexOf(one), ring];
            })()"""
        )
        if at:
            assert at[1] != "none"
            reached.add(at[0])
    assert len(reached) == wanted
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "scheme"), [("laptop", "light"), ("laptop", "dark"), ("phone", "light")])
def test_no_serious_finding_of_axe(
    pages: dict[str, Path], open_page: Callable[..., Any], kind: str, size: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(pages[kind], size, scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.run(page).response["violations"]
    told = [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in ("serious", "critical")
    ]
    assert told == []


def test_pointing_at_a_mark_says_what_it_is(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    page = open_page(pages["hostile"]).page
    page.locator("#histogram .wide [data-tip]").first.hover()
    assert page.locator("#tip").is_visible()
    assert " gaps" in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_saved_as_svg_and_png_in_its_own_colours(
    pages: dict[str, Path], open_page: Callable[..., Any], tmp_path: Path, scheme: str
) -> None:
    opened = open_page(pages["made"], "laptop", scheme)
    for figure in opened.page.locator("figure").all()[:4]:
        name, title = figure.get_attribute("id"), figure.get_attribute("data-title")
        for kind in ("svg", "png"):
            with opened.page.expect_download() as saved:
                figure.locator(f"button[data-save={kind}]").click()
            assert saved.value.suggested_filename == f"{name}.{kind}"
            saved.value.save_as(tmp_path / f"{name}.{kind}")
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        root = ET.fromstring(drawn)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in drawn
        assert title in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert opened.said == []


def test_print_has_the_wide_charts_and_no_buttons(pages: dict[str, Path], open_page: Callable[..., Any]) -> None:
    page = open_page(pages["real"], "phone", "dark").page
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("button").first.is_visible()
    assert page.locator(".wide").first.is_visible()
    assert not page.locator(".phone").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_it_is_all_there(pages: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(pages["made"].as_uri())
    assert page.locator("figure svg").first.is_visible()
    assert page.locator("table:visible").first.is_visible()
    context.close()

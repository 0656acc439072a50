"""Every page as a reader's browser sees it: light, dark, on a phone, by keyboard."""

import json
import os

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from conftest import HTML

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
PAGES = [name for name in PAGES if not name.startswith("_")]

# Of the things that look alike, axe gets the first few: a token of code in each of its
# colours, ten rows of a table, six folds. Else this takes half an hour.
THIN = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  all("article details").forEach((it, n) => n < 6 ? (it.open = true) : it.remove());
  all("tbody tr:nth-child(n+11)").forEach((row) => row.remove());
  const seen = new Set();
  for (const token of all("pre span:not(.hll), code span")) {
    const block = token.closest("pre, code").parentElement.parentElement.className;
    const kind = [token.className, !!token.closest(".hll"), block].join();
    seen.has(kind) ? token.replaceWith(...token.childNodes) : seen.add(kind);
  }
  const lit = all(".hll:not(:has(span))").slice(1);
  lit.forEach((line) => line.replaceWith(line.textContent));
  document.body.normalize();
}"""
# Of each block of code, whether it is wider than its place, and how it fades out.
MASKS = """() => [...document.querySelectorAll("div.highlight pre")]
  .map((it) => [it.scrollWidth > it.clientWidth, getComputedStyle(it).maskImage])"""
# Only contrast depends on the scheme. It takes long, so each kind of text is looked at
# once: its element, with what is inside and around it. The answers come in `found`.
CHECK = """() => {
  const look = async (scheme, options) => {
    document.documentElement.dataset.theme = scheme;
    const { violations } = await axe.run({ resultTypes: ["violations"], ...options });
    const say = (rule, node) => [scheme, rule.id, node.target.join(" "),
      [...node.any, ...node.all, ...node.none][0].message].join(" | ");
    return violations.flatMap((rule) => rule.nodes.map((node) => say(rule, node)));
  };
  const thin = () => {
    const seen = new Set();
    const name = (element) => element.tagName + element.className;
    for (const it of document.querySelectorAll("article :is(p, li, td, dd), nav li")) {
      if (it.querySelector("pre, p, li")) continue;
      let kind = [...new Set([...it.querySelectorAll("*")].map(name))].sort().join();
      for (let up = it; up !== document.body; up = up.parentElement) kind += name(up);
      seen.has(kind) ? it.remove() : seen.add(kind);
    }
  };
  const rules = {
    "color-contrast": { enabled: false },
    "link-in-text-block": { enabled: false },
    "label-content-name-mismatch": { enabled: true },
  };
  const contrast = { runOnly: ["color-contrast", "link-in-text-block"] };
  window.found = (async () => [
    ...await look("light", { rules }),
    ...(thin(), await look("light", contrast)),
    ...await look("dark", contrast),
  ])();
}"""
# The width that a page takes, also where its article would scroll as a whole.
WIDE = """() => Math.max(...[document.documentElement, ...document.querySelectorAll(
  ".bd-article-container")].map((element) => element.scrollWidth))"""
# The tables of up to five columns that a phone has to scroll sideways.
SCROLLED = """() => [...document.querySelectorAll("article table")].filter((table) => {
  const place = table.parentElement;
  return table.rows[0].cells.length < 6 && place.scrollWidth > place.clientWidth + 1;
}).map((table) => table.innerText.slice(0, 60))"""
# The cells that have less room than a word needs: a letter takes at least 0.3 em.
SQUEEZED = """() => {
  const cells = [...document.querySelectorAll("article :is(td, th)")];
  const squeezed = cells.filter((cell) => {
    const { fontSize, paddingLeft, paddingRight } = getComputedStyle(cell);
    const room = cell.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    const words = cell.innerText.split(/[^a-z0-9]+/i);
    const letters = Math.min(8, Math.max(...words.map((word) => word.length)));
    const shown = cell.clientWidth && !cell.closest(".stacks thead");
    return shown && room < 0.3 * parseFloat(fontSize) * letters;
  });
  return squeezed.slice(0, 3).map((cell) => [cell.clientWidth, cell.innerText]);
}"""
# Of messages, headings and names of files, the words that are on two lines. A name of
# several words, such as one_two.three, may break between them.
BROKEN = """() => {
  const broken = [];
  const range = document.createRange();
  const places = "h1, h2, h3, .code-block-caption, .run-error pre, .wraps pre";
  for (const it of document.querySelectorAll(`article :is(${places})`)) {
    const walk = document.createTreeWalker(it, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      for (const { 0: word, index } of walk.currentNode.data.matchAll(/[a-z0-9]+/gi)) {
        range.setStart(walk.currentNode, index);
        range.setEnd(walk.currentNode, index + word.length);
        const tops = [...range.getClientRects()].map(({ top }) => Math.round(top));
        const lines = new Set(tops);
        if (lines.size > 1 && word.length < 40) broken.push(word);
      }
    }
  }
  return broken;
}"""
# The widest output, in widths of its place.
WIDEST = """() => {
  const outputs = [...document.querySelectorAll(":is(.run-output, .cell_output) pre")];
  return Math.max(...outputs.map((it) => it.scrollWidth / it.clientWidth));
}"""
# How far the further lines of a verdict are indented.
HANGING = """() => [...document.querySelectorAll(".wraps .line")].flatMap((line) => {
  const range = document.createRange();
  range.selectNodeContents(line);
  const [first, ...rest] = range.getClientRects();
  const further = rest.filter(({ width, top }) => width && top > first.top);
  return further.map(({ left }) => left - first.left);
})"""
# On how many lines each number such as 1e-7 is where a line has hardly any room.
NUMBERS = """() => [...document.querySelectorAll("article .number")].map((it) => {
  it.parentElement.style.cssText = "display: block; width: 1px";
  return it.getClientRects().length;
})"""
# The width of the narrowest cell that has a sentence.
NARROWEST = """() => Math.min(...[...document.querySelectorAll("article td")]
  .filter((cell) => cell.innerText.length > 60).map((cell) => cell.clientWidth))"""
# How far the first sign of a formula is from the left of its place.
FORMULAS = """() => [...document.querySelectorAll("div.math")].map((it) =>
  it.querySelector("math").firstElementChild.getBoundingClientRect().left -
  it.getBoundingClientRect().left)"""
# What has the focus, and whether a reader sees that it has.
FOCUS = """() => {
  const it = document.activeElement;
  if (it === document.body) return null;
  const shown = it.matches(".sd-stretched-link") ? it.closest(".sd-card") : it;
  const look = () => [null, "::before", "::after"].map((part) => {
    const { outline, boxShadow, borderColor } = getComputedStyle(shown, part);
    return outline + boxShadow + borderColor;
  }).join();
  const { width, height } = shown.getBoundingClientRect();
  const seen = width > 1 && height > 1 && getComputedStyle(shown).opacity > 0.9;
  const focused = look();
  it.blur();
  const changes = look() !== focused;
  it.focus();
  return [seen && changes, it.outerHTML.slice(0, 100)];
}"""


@pytest.fixture(scope="module")
def visit(chromium, site):
    """Each page opened once: what axe found, how it fits a phone, its requests."""
    found, wide, scrolled, squeezed, asked = {}, {}, {}, {}, {}
    size = {"viewport": DESKTOP, "reduced_motion": "reduce"}
    tabs = [chromium.new_context(**size).new_page() for _ in range(os.cpu_count())]
    for first in range(0, len(PAGES), len(tabs)):
        group = list(zip(tabs, PAGES[first:], strict=False))
        for tab, name in group:
            requests = asked.setdefault(name, [])
            tab.on("request", keep := lambda r, to=requests: to.append(r.url))
            tab.goto(f"{site}/{name}")
            tab.set_viewport_size(PHONE)
            wide[name] = tab.evaluate(WIDE)
            scrolled[name] = tab.evaluate(SCROLLED)
            squeezed[name] = tab.evaluate(SQUEEZED)
            tab.remove_listener("request", keep)
            tab.set_viewport_size(DESKTOP)
            tab.add_style_tag(content="* { transition: none !important; }")
            tab.evaluate(THIN)
            tab.evaluate(AXE_SCRIPT)
            tab.evaluate(CHECK)
        for tab, name in group:
            found[name] = tab.evaluate("window.found")
    for tab in tabs:
        tab.context.close()
    seen = {"wide": wide, "scrolled": scrolled, "squeezed": squeezed}
    return {"found": found, "asked": asked, **seen}


def test_axe_finds_nothing_in_light_and_dark(visit):
    found = [f"{name} | {what}" for name in PAGES for what in visit["found"][name]]
    assert not found, f"{len(found)} violations\n" + "\n".join(found)


def test_axe_finds_nothing_on_a_phone(chromium, site):
    page = chromium.new_page(viewport=PHONE, reduced_motion="reduce")
    page.goto(f"{site}/index.html")
    for script in (AXE_SCRIPT, CHECK):
        page.evaluate(script)
    found = page.evaluate("window.found")
    page.close()
    assert not found, "\n".join(found)


def test_code_that_goes_on_fades_out_on_a_phone(chromium, site):
    page = chromium.new_page(viewport=PHONE)
    page.goto(f"{site}/guide/2_interface.html")
    masks = page.evaluate(MASKS)
    page.close()
    assert {is_wide for is_wide, _ in masks} == {True, False}
    assert all(is_wide == (mask != "none") for is_wide, mask in masks)


MESSAGES = ["guide/3_test", "explain/strides", "triton/11_debug"]


@pytest.mark.parametrize("name", [*MESSAGES, "reference/environment_variables"])
def test_a_long_name_breaks_between_its_words_on_a_phone(chromium, site, name):
    page = chromium.new_page(viewport=PHONE)
    page.goto(f"{site}/{name}.html")
    broken = page.evaluate(BROKEN)
    page.close()
    assert not broken


def test_a_formula_that_is_too_wide_shows_its_beginning(chromium, site):
    page = chromium.new_page(viewport=PHONE)
    page.goto(f"{site}/reference/api.html")
    starts = page.evaluate(FORMULAS)
    page.close()
    assert min(starts) >= 0


@pytest.mark.parametrize("name", ["trouble/index", "tutorials/update_a_cache_in_place"])
def test_a_message_of_several_sentences_wraps(page, site, name):
    page.goto(f"{site}/{name}.html")
    assert page.evaluate(WIDEST) < 2


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_a_verdict_that_goes_on_is_indented(chromium, site, viewport):
    page = chromium.new_page(viewport=viewport)
    page.goto(f"{site}/howto/judge_a_kernel.html")
    indents = page.evaluate(HANGING)
    page.close()
    assert indents
    assert min(indents) > 10


def test_a_number_stays_on_one_line(page, site):
    page.goto(f"{site}/guide/3_test.html")
    assert set(page.evaluate(NUMBERS)) == {1}


def test_names_leave_room_for_the_sentences_of_a_table(page, site):
    page.goto(f"{site}/howto/port_to_hip.html")
    assert page.evaluate(NARROWEST) > 120


def test_no_page_is_wider_than_a_phone(visit):
    assert not {n: wide for n, wide in visit["wide"].items() if wide > PHONE["width"]}


def test_no_row_stands_outside_its_table():
    pages = {name: (HTML / name).read_text(encoding="utf-8") for name in PAGES}
    assert not [name for name, text in pages.items() if "<p>| " in text]


def test_a_table_of_few_columns_fits_a_phone(visit):
    assert not {name: tables for name, tables in visit["scrolled"].items() if tables}


def test_a_wide_table_keeps_its_columns_on_a_phone(visit):
    assert not {name: cells for name, cells in visit["squeezed"].items() if cells}


def test_no_request_leaves_the_site(visit, site):
    left = {url for urls in visit["asked"].values() for url in urls}
    assert not {url for url in left if not url.startswith((site, "data:"))}


@pytest.mark.parametrize("name", ["index.html", "guide/4_register.html"])
def test_a_reader_with_a_keyboard_sees_where_they_are(page, site, name):
    page.goto(f"{site}/{name}")
    page.add_style_tag(content="* { transition: none !important; }")
    lost = []
    for _ in range(200):
        page.keyboard.press("Tab")
        if not (focus := page.evaluate(FOCUS)):
            break
        lost += [] if focus[0] else [focus[1]]
    assert not lost, "\n".join(lost)


def test_a_copy_button_copies_commands_without_prompts(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/guide/1_first_operator.html")
    block = page.locator("div.highlight-console").first
    button = block.locator("button.copybtn")
    assert button.evaluate("it => getComputedStyle(it).opacity") == "0"
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("button.copybtn.success")
    shown = block.locator("pre").inner_text().splitlines()
    commands = [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
    assert commands
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(commands)


def test_the_second_button_copies_a_complete_program(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/explain/strides.html")
    block = page.locator("div.highlight:has(button.program)").first
    block.locator("button.program").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("button.program.success")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import torch\n")
    assert copied.endswith(block.locator("pre").inner_text().strip())


@pytest.mark.parametrize("name", ["guide/4_register", "tutorials/rms_norm"])
def test_a_page_offers_its_notebook(page, site, name):
    page.goto(f"{site}/{name}.html")
    with page.expect_download() as download:
        page.click(".header-article__inner >> text=Notebook")
    assert download.value.suggested_filename == f"{name.rpartition('/')[2]}.ipynb"
    assert json.loads(download.value.path().read_text())["nbformat"] == 4


def test_a_finger_finds_the_copy_button(chromium, site):
    context = chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{site}/guide/1_first_operator.html")
    button = page.locator("button.copybtn").first
    assert button.evaluate("it => getComputedStyle(it).opacity") == "1"
    context.close()


def test_the_text_stays_in_its_place_from_page_to_page(page, site):
    left = set()
    for name in ("guide/index", "guide/4_register", "tutorials", "reference/ledger"):
        page.goto(f"{site}/{name}.html")
        left.add(page.locator("article h1").bounding_box()["x"])
    assert len(left) == 1


@pytest.mark.parametrize("name", ["guide/index", "tutorials", "reference/errors"])
def test_the_bar_says_where_the_reader_is(page, site, name):
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{site}/{name}.html")
    colors = page.evaluate("""() => {
      const color = (e) => e && getComputedStyle(e).color;
      const bar = document.querySelector(".bd-header");
      const here = bar.querySelector(".navbar-nav > .current > a") ||
        bar.querySelector(".navbar-nav > .dropdown:has(.current) > button");
      return [color(here), color(document.querySelector(".bd-article a[href]"))];
    }""")
    assert colors[0] == colors[1]


@pytest.mark.parametrize("missing", ["gone.html", "guide/gone/deep/"])
def test_a_missing_page_leads_back(page, site, missing):
    assert page.goto(f"{site}/{missing}").status == 404
    assert page.locator(".bd-header").bounding_box()["height"] < 150  # it has its style
    page.fill("article input[type=search]", "stride")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site}/search.html?q=stride")
    page.go_back()
    page.click("text=front page")
    page.wait_for_url(f"{site}/index.html")

"""Every page as a reader's browser sees it: light, dark, on a phone, by keyboard."""

import os

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from conftest import HTML

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PAGES = sorted(p.relative_to(HTML).as_posix() for p in HTML.rglob("*.html"))
PAGES = [name for name in PAGES if not name.startswith("_")]

# Of the things that look alike, axe gets the first few: a token of code in each of its
# colours, ten rows of a table, six folds. Else this takes half an hour.
THIN = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  all("article details").forEach((fold, n) => n < 6 ? (fold.open = true) : fold.remove());
  all("tbody tr:nth-child(n+11)").forEach((row) => row.remove());
  const seen = new Set();
  for (const token of all("pre span:not(.hll), code span")) {
    const block = token.closest("pre, code").parentElement.parentElement.className;
    const kind = [token.className, !!token.closest(".hll"), block].join();
    seen.has(kind) ? token.replaceWith(...token.childNodes) : seen.add(kind);
  }
  all(".hll:not(:has(span))").slice(1).forEach((line) => line.replaceWith(line.textContent));
  document.body.normalize();
}"""
# Only contrast depends on the scheme. The answers come later, in `found`.
CHECK = """() => {
  const look = async (scheme, options) => {
    document.documentElement.dataset.theme = scheme;
    const { violations } = await axe.run({ resultTypes: ["violations"], ...options });
    return violations.flatMap(({ id, nodes }) => nodes.map(({ target, any, all, none }) =>
      [scheme, id, target.join(" "), [...any, ...all, ...none][0].message].join(" | ")));
  };
  const names = { "label-content-name-mismatch": { enabled: true } };
  const contrast = { runOnly: ["color-contrast", "link-in-text-block"] };
  window.found = (async () =>
    [...await look("light", { rules: names }), ...await look("dark", contrast)])();
}"""


@pytest.fixture(scope="module")
def visit(chromium, site):
    """Each page opened once: what axe found, its width on a phone, what it asked for."""
    found, wide, asked = {}, {}, {}
    size = {"viewport": PHONE, "reduced_motion": "reduce"}
    tabs = [chromium.new_context(**size).new_page() for _ in range(os.cpu_count())]
    for first in range(0, len(PAGES), len(tabs)):
        group = list(zip(tabs, PAGES[first:], strict=False))
        for tab, name in group:
            requests = asked.setdefault(name, [])
            tab.on("request", keep := lambda r, to=requests: to.append(r.url))
            tab.set_viewport_size(PHONE)
            tab.goto(f"{site}/{name}")
            wide[name] = tab.evaluate("document.documentElement.scrollWidth")
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
    return {"found": found, "wide": wide, "asked": asked}


def test_axe_finds_nothing_in_light_and_dark(visit):
    found = [f"{name} | {what}" for name in PAGES for what in visit["found"][name]]
    assert not found, f"{len(found)} violations\n" + "\n".join(found)


def test_no_page_is_wider_than_a_phone(visit):
    assert not {n: wide for n, wide in visit["wide"].items() if wide > PHONE["width"]}


def test_no_request_leaves_the_site(visit, site):
    left = {url for urls in visit["asked"].values() for url in urls}
    assert not {url for url in left if not url.startswith((site, "data:"))}

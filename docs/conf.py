"""Sphinx configuration. Before Sphinx starts, `python -m proof` builds the library."""

import os
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BUILD = ROOT / "build"
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent / "tools" / "src")]

import versions  # noqa: E402  found through the line above
from proof.evidence import fingerprint  # noqa: E402

# `nox -s quick` sets this tag: pages are laid out and their code is not run, but for
# the one page that `nox -s page` names.
QUICK = tags.has("quick")  # noqa: F821  Sphinx puts `tags` into this file
ONLY_PAGE = os.environ.get("OPBOOK_PAGE", "") if QUICK else ""

# Project ----------------------------------------------------------------------------

project = "Opbook"
author = "Opbook contributors"
copyright = "Opbook contributors, BSD-3-Clause"
language = "en"
# The address of the repository, "https://github.com/OWNER/NAME": pages then link to it.
# examples_src/sources/reduction/install.sh clones it, and a test compares the two.
repository = ""
# The address above the sites of all versions, and the version of this one: the workflow
# that publishes a release sets them. Without them there is no version switcher.
versions_site = os.environ.get("OPBOOK_SITE", "")
release = version = os.environ.get("OPBOOK_VERSION", "")

# General ----------------------------------------------------------------------------

extensions = [
    # Sphinx's own
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    # Our own, in _ext
    "anchors",
    "mathml",
    "proof",
    "code_objects",
    "custom_op_docs",
    "error_table",
    "finding",
    "finish",
    "notebooks",
    "operator_table",
    "step_files",
    "steps",
    "support_matrix",
    "topics",
    "versions",
    # External
    "myst_nb",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
]
templates_path = ["_templates"]
# The gallery writes a notebook beside each page: a download, not a second page.
exclude_patterns = ["_ext", "inventories", "examples/**.ipynb"]
nitpicky = True
html_math_renderer = "mathml"

# Plain-text inventories hold the names that the book refers to, one per line: links
# resolve without a network, and a misspelt name fails the build.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.txt"),
    "torch": ("https://docs.pytorch.org/docs/stable", "inventories/torch.txt"),
}

# Pages, notebooks and gallery -------------------------------------------------------

proof_execute = ONLY_PAGE or not QUICK

myst_enable_extensions = [
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
    "fieldlist",
]
myst_heading_anchors = 3

# The outputs of a notebook are good for the sources and versions they came from.
nb_execution_cache_path = str(
    BUILD / "jupyter_cache" / fingerprint(["csrc", "src/opbook"])
)
nb_execution_mode = "off" if QUICK else "cache"
if ONLY_PAGE.startswith("tutorials/"):
    nb_execution_mode = "cache"
    notebooks = (ROOT / "tutorials").glob("*.ipynb")
    others = {f"tutorials/{path.name}" for path in notebooks} - {f"{ONLY_PAGE}.ipynb"}
    nb_execution_excludepatterns = sorted(others)
nb_execution_timeout = 600  # seconds; the default of 30 is short for a compiler
nb_execution_show_tb = True
nb_merge_streams = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples_src",
    "gallery_dirs": "examples",
    "filename_pattern": rf"/{Path(ONLY_PAGE).name}\.py$" if ONLY_PAGE else r"/\d\d_",
    "ignore_pattern": r"(^|/)_",
    "within_subsection_order": "FileNameSortKey",
    "plot_gallery": not QUICK or ONLY_PAGE.startswith("examples/"),
    "remove_config_comments": True,
    "inspect_global_variables": False,  # links on functions, not on every variable
    "show_signature": False,
    # Its two pages load scripts from other hosts.
    "write_computation_times": False,
}


def copy_notebooks() -> None:
    """Mirror tutorials/ into docs/tutorials/, touching only what has changed."""
    target = DOCS / "tutorials"
    target.mkdir(exist_ok=True)
    sources = {path.name: path for path in (ROOT / "tutorials").glob("*.ipynb")}
    for stale in target.glob("*.ipynb"):
        if stale.name not in sources:
            stale.unlink()
    for name, source in sources.items():
        copy = target / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copyfile(source, copy)


copy_notebooks()

# API --------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

# HTML -------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "Opbook"
html_static_path = ["_static"]
html_css_files = ["opbook.css", "search.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = True
html_additional_pages = {"404": "404.html", "search": "search.html"}
html_js_files = [(name, {"defer": "defer"}) for name in ("search.js", "tables.js")]
html_sourcelink_suffix = ""  # a notebook keeps its name, and is its own download
html_sidebars = {"**": ["sidebar-nav-bs"], "index": []}
html_theme_options = {
    "logo": {
        "text": "Opbook",
        "alt_text": "Opbook, to the front page",
        "image_light": "_static/logo-light.svg",
        "image_dark": "_static/logo-dark.svg",
    },
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "search_bar_text": "Search",
    "show_nav_level": 2,
    "show_toc_level": 2,
    "article_header_end": ["download"],
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "github-light",
    "pygments_dark_style": "github-dark",
    "back_to_top_button": False,
}
if repository:
    # Gallery scripts and notebooks are copied into docs/.
    source = (
        "{% if pagename.startswith('examples/') %}examples_src/"
        "{{ (pagename[9:] ~ '.py').replace('index.py', 'GALLERY_HEADER.rst') }}"
        "{% elif pagename.startswith('tutorials/') %}{{ file_name }}"
        "{% else %}docs/{{ file_name }}{% endif %}"
    )
    html_context = {"edit_page_url_template": f"{repository}/edit/main/{source}"}
    html_theme_options |= {
        "use_edit_page_button": True,
        "navbar_end": ["theme-switcher", "navbar-icon-links"],
        "icon_links": [
            {"name": "Sources", "url": repository, "icon": "fa-solid fa-code-branch"}
        ],
    }
if versions_site:
    html_baseurl = f"{versions_site}/{version}/"
    html_theme_options |= versions.theme_options(versions_site, version)
    html_theme_options["navbar_end"].insert(0, "version-switcher")


def setup(app):
    # When a first build stops early, the theme copies its logo to this name all the
    # same, as a file if the folder is not there, and every later build fails.
    Path(app.outdir, "_static").mkdir(parents=True, exist_ok=True)

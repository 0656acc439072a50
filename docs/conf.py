"""Sphinx configuration. Sphinx shows what `python -m proof` ran, and runs nothing."""

import os
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BUILD = ROOT / "build"
sys.path.insert(0, str(DOCS / "_ext"))

from proof.evidence import store  # noqa: E402  found through the line above
from proof.notebook import EXECUTED, notebooks  # noqa: E402

# Project ----------------------------------------------------------------------------

project = "Opbook"
author = "Opbook contributors"
copyright = "Opbook contributors, BSD-3-Clause"
language = "en"
# The address of the repository: pages then link to it, and not to a zip of its files.
repository = ""

# General ----------------------------------------------------------------------------

extensions = [
    # Sphinx's own
    "sphinx.ext.intersphinx",
    # Our own, in _ext
    "anchors",
    "api",
    "mathml",
    "proof",
    "downloads",
    "error_table",
    "executors",
    "file_tables",
    "finding",
    "finish",
    "kernel_tables",
    "notebooks",
    "steps",
    "topics",
    # External
    "myst_nb",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_reredirects",
]
# The address of a page that is gone, and where its subject is now.
redirects = {
    "dispatch/add_seeds_and_compile_to_a_backend": "complete_a_backend.html",
    "dispatch/add_streams_to_a_backend": "complete_a_backend.html",
    "dispatch/escape_infinite_recursion": "override_an_aten_operator.html",
    "dispatch/port_to_musa": "../howto/support_xpu_and_mps.html",
    "guide/3_gpu_kernel": "6_gpu_kernel.html",
    "guide/5_package": "7_package.html",
    "guide/6_test": "3_test.html",
    "guide/7_autograd": "5_autograd.html",
    "guide/9_other_arguments": "../howto/change_the_arguments.html",
    "howto/bind_three_ways": "../explain/which_mechanism.html",
    "howto/build_the_library": "configure_the_build.html",
    "howto/compile_without_graph_breaks": "../guide/4_register.html",
    "howto/design_the_interface": "../guide/2_interface.html",
    "howto/find_a_fault": "../trouble/index.html",
    "howto/follow_the_checklist": "contribute.html",
    "howto/fuse_an_addition": "fuse_operators.html",
    "howto/fuse_linear_and_gelu": "fuse_operators.html",
    "howto/keep_a_side_effect": "mutate_an_input.html",
    "howto/prove_cuda_behaviour": "avoid_kernel_pitfalls.html",
    "howto/register_the_operator": "../reference/registration.html",
    "howto/return_a_shape_that_depends_on_data": "return_several_outputs.html",
    "howto/ship_a_wheel": "publish.html",
    "howto/start_with_the_smallest_operator": "../guide/1_first_operator.html",
    "howto/use_environment_variables": "../reference/environment_variables.html",
    "howto/write_the_tests": "../reduction/3_test.html",
    "reference/build_flags": "../howto/configure_the_build.html",
    "reference/coverage": "ledger.html",
    "triton/8_triton_op": "../triton/4_three_paths.html",
    "trouble/errata": "../reference/errata.html",
    "trouble/find_a_fault": "index.html",
    "trouble/lost_gradient_warning": "index.html",
    "trouble/slow_load_inline": "../dispatch/build_without_setuptools.html",
    "trouble/strides_under_compile": "../explain/strides.html",
}
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

# `nox -s read` sets this tag: what has no evidence yet says so, and is no error.
proof_complete = not tags.has("read")  # noqa: F821  Sphinx puts `tags` into this file
proof_page = os.environ.get("OPBOOK_PAGE", "")  # of this one, a build prints the counts

myst_enable_extensions = [
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
    "fieldlist",
]
myst_heading_anchors = 3

nb_execution_mode = "off"
nb_merge_streams = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples_src",
    "gallery_dirs": "examples",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"(^|/)_",
    "within_subsection_order": "FileNameSortKey",
    # The scripts do not run in this process: see proof/gallery.py.
    "image_scrapers": (),
    "reset_modules": (),
    "remove_config_comments": True,
    "inspect_global_variables": False,  # links on functions, not on every variable
    "show_signature": False,
    # Its two pages load scripts from other hosts.
    "write_computation_times": False,
}
# `minigallery` warns that it knows no backreferences: it is given files. And the folder
# of the repository may have a space in its name.
suppress_warnings = ["sphinx_gallery.config", "sphinx_gallery.space_in_filename"]


def copy_notebooks() -> None:
    """Mirror tutorials/ into docs/tutorials/, touching only what has changed.

    A notebook that has run in this checkout shows what it printed here.
    """
    target = DOCS / "tutorials"
    target.mkdir(exist_ok=True)
    sources = {path.name: path for path in notebooks()}
    for stale in {*target.glob("*.ipynb")} - {target / name for name in sources}:
        stale.unlink()
    for name, source in sources.items():
        ran_here = store().here(f"notebook:tutorials/{name}")
        shown = EXECUTED / name if ran_here and (EXECUTED / name).exists() else source
        copy = target / name
        if not copy.exists() or copy.read_bytes() != shown.read_bytes():
            shutil.copyfile(shown, copy)


copy_notebooks()

# API --------------------------------------------------------------------------------

python_use_unqualified_type_names = True
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
scripts = ("programs.js", "search.js", "tables.js")
html_js_files = [(name, {"defer": "defer"}) for name in scripts]
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


def setup(app):
    # When a first build stops early, the theme copies its logo to this name all the
    # same, as a file if the folder is not there, and every later build fails.
    Path(app.outdir, "_static").mkdir(parents=True, exist_ok=True)

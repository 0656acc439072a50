"""The site's search and its table of errors, as a reader uses them."""

import re
import tomllib
from pathlib import Path

from conftest import HTML

# What a reader types, and the page that answers. Several pages when each one does.
QUERIES = {
    "getting started": "guide/1_first_operator",
    "in-place": "howto/mutate_an_input",
    "mutates_args": "howto/mutate_an_input",
    "AMD": "howto/port_to_hip",
    "cuda to rocm": "howto/port_to_hip",
    "CUDA kernel": "guide/6_gpu_kernel",
    "register_autograd": "guide/5_autograd",
    "custom backward": "guide/5_autograd reduction/4_gradient",
    "undefined symbol": "reference/errors explain/the_stable_abi trouble/index",
    "fake tensor": "guide/4_register reference/glossary",
    "torch.compile graph break": "guide/4_register",
    "multiple outputs": "howto/return_several_outputs",
    "return a tuple of tensors": "howto/return_several_outputs",
    "nonzero unique dynamic shape": "howto/return_several_outputs",
    "pybind11": "explain/which_mechanism howto/migrate_an_extension",
    "port an old operator": "howto/migrate_an_extension",
    "upgrade to new pytorch": "howto/migrate_an_extension",
    "legacy operator": "howto/migrate_an_extension",
    "segment offsets": "howto/change_the_arguments production/write_a_paged_cache",
    "mixed precision": "howto/work_with_vmap_and_autocast",
    "batching rule": "howto/work_with_vmap_and_autocast",
    "sharding distributed": "howto/work_with_tensor_subclasses",
    "activation checkpointing": "howto/save_memory",
    "saved tensors memory": "howto/save_memory",
    "dropped by the compiler": "howto/mutate_an_input",
    "out overload Inductor buffer reuse": "howto/reuse_memory_with_out",
    "helion gluon cutile tilelang": "howto/bring_a_kernel_from_another_language",
    "opaque object CustomClassHolder generator": "howto/keep_state",
    "manylinux": "howto/publish",
    "torch.export AOTInductor": "howto/deploy_without_python",
    "py_limited_api abi3": "explain/the_stable_abi howto/configure_the_build",
    "nsight compute": "howto/profile",
    "compute-sanitizer": "howto/check_memory",
    "how to time a kernel": "howto/benchmark_honestly",
    "github actions": "howto/run_ci_on_a_gpu",
    "TORCH_CUDA_ARCH_LIST": "howto/configure_the_build",
    "slow build ccache": "howto/configure_the_build",
    "segfault": "trouble/index",
    "gdb": "howto/step_through_a_kernel",
    "metal": "howto/support_xpu_and_mps",
    "cmake": "dispatch/build_without_setuptools",
    "PrivateUse1": "dispatch/bring_a_backend",
    "replace torch.mm": "dispatch/override_an_aten_operator",
    "TORCH_LIBRARY_FRAGMENT": "dispatch/share_a_namespace",
    "cuda stream": "explain/streams",
    "memory bound": "explain/roofline",
    "cutlass": "howto/reach_for_a_library",
    "tvm-ffi nonstrict_trace": "explain/which_mechanism",
    "which mechanism": "explain/which_mechanism",
    "race condition": "howto/avoid_kernel_pitfalls",
    "run triton without a gpu": "triton/9_interpreter triton/10_ahead_of_time",
    "autotune": "triton/14_autotune examples/70_autotune_in_triton",
    "optional tensor argument": "reference/schema_language guide/2_interface",
    "non-contiguous input": "explain/strides dispatch/handle_edge_cases",
    "gradcheck": "reduction/3_test reduction/4_gradient",
    "project template": "guide/8_your_own howto/contribute",
    "Windows": "reference/platforms",
    "macOS": "reference/platforms howto/support_xpu_and_mps",
    "C shim": "howto/deploy_without_python",
    "register_custom_op_autotuning": "howto/choose_an_implementation",
    "NVFP4": "production/quantize_in_blocks",
    "mixture of experts": "production/group_rows_by_expert",
    "free-threaded": "howto/publish explain/the_stable_abi reference/registration",
    "batch invariance": "production/promise_the_same_bits",
    "coding assistant": "howto/teach_an_agent",
}

# What a reader pastes, and the row that has to answer.
MESSAGES = tomllib.loads(
    Path(__file__).with_name("messages.toml").read_text(encoding="utf-8")
)["message"]

FIELD = "#pst-search-dialog input"
HITS = "#pst-search-dialog .search-hits"


def searched(page):
    """Wait until the search has what is in its field."""
    page.wait_for_function(
        "([hits, field]) => document.querySelector(hits)?.dataset.query"
        " === document.querySelector(field).value",
        arg=[HITS, FIELD],
    )


def results(page):
    """The pages that the search lists."""
    searched(page)
    root = page.evaluate(
        "new URL(document.documentElement.dataset.content_root, location).href"
    )
    links = page.eval_on_selector_all(f"{HITS} a", "links => links.map(a => a.href)")
    return [re.sub(r"\.html.*", "", link.removeprefix(root)) for link in links]


def check(ranks):
    """The right page is first nine times in ten, and always among the first three."""
    missed = {what: rank for what, rank in ranks.items() if rank != 1}
    assert all(rank in (2, 3) for rank in missed.values()), missed
    assert len(missed) <= len(ranks) // 10, missed


def rank(found, right):
    return next((n for n, name in enumerate(found, 1) if name in right), None)


def test_a_query_finds_its_page(page, site):
    page.goto(f"{site}/howto/index.html")
    page.keyboard.press("Control+k")
    ranks = {}
    for query, right in QUERIES.items():
        page.fill(FIELD, "")
        page.keyboard.type(query)
        ranks[query] = rank(results(page), right.split())
    check(ranks)


def check_answers(answers):
    """No message gets a row that is not its own, and nine in ten get theirs.

    Args:
        answers: of each message the texts of the rows that were shown.
    """
    wrong, missing = {}, []
    for entry, rows in zip(MESSAGES, answers, strict=True):
        wanted = [entry["row"]] if isinstance(entry["row"], str) else entry["row"]
        is_right = any(text in row for text in wanted if text for row in rows)
        if rows and not is_right:
            wrong[entry["message"]] = rows
        elif any(wanted) and not rows:
            missing.append(entry["message"])
    assert not wrong
    assert len(missing) <= len(MESSAGES) // 10, missing


def test_a_pasted_message_gets_its_row_or_none(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/index.html")
    page.keyboard.press("Control+k")
    answers = []
    for entry in MESSAGES:
        page.evaluate("text => navigator.clipboard.writeText(text)", entry["message"])
        page.fill(FIELD, "")
        page.keyboard.press("Control+v")
        searched(page)
        rows = page.locator(f'{HITS} a[href*="errors.html#error-"]')
        answers.append(rows.all_inner_texts())
        status = page.locator("#pst-search-dialog [role=status]").inner_text()
        start = "In" if rows.count() else "Not in"
        assert status.startswith(f"{start} the table of errors"), entry["message"]
    check_answers(answers)


def test_the_table_of_errors_answers_the_same_messages(page):
    page.goto((HTML / "reference/errors.html").as_uri())
    answers = []
    for entry in MESSAGES:
        page.fill(".error-filter input", entry["message"].replace("\n", " "))
        rows = page.locator(".error-table tbody tr[id]:visible")
        answers.append(rows.all_inner_texts())
        output = page.locator(".error-filter output").inner_text()
        assert ("not in the table" in output) != bool(rows.count()), entry["message"]
    check_answers(answers)


def test_the_search_works_from_a_file(page):
    page.goto((HTML / "howto/index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("pybind")
    assert results(page)[0] == "explain/which_mechanism"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/explain/which_mechanism.html*")
    marked = page.locator("article .highlighted")
    marked.first.wait_for()
    assert marked.first.inner_text().lower() == "pybind"


def test_enter_lists_all_results(page, site):
    page.goto(f"{site}/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("fake tensor")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=fake+tensor")
    hits = page.locator(".bd-search-container .search-hits a")
    hits.nth(10).wait_for()
    status = page.locator(".bd-search-container [role=status]")
    assert "best pages" in status.inner_text()


def test_nothing_of_the_search_loads_before_it_is_used(page, site):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site}/index.html", wait_until="networkidle")
    heavy = ("searchindex", "search_data", "minisearch", "searchtools")
    assert not [url for url in asked if any(name in url for name in heavy)]
    page.keyboard.press("Control+k")
    page.wait_for_function("typeof SEARCH_DATA === 'object'")


def test_the_filter_of_errors(page):
    page.goto((HTML / "reference/errors.html").as_uri())
    rows = page.locator(".error-table tbody tr[id]")
    total = rows.count()
    ids = rows.evaluate_all("rows => rows.map(row => row.id)")
    assert len(set(ids)) == total > 100
    field = page.locator(".error-filter input")
    field.fill(
        "ImportError: fused_norm.so: undefined symbol: "
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
    )
    shown = page.locator(".error-table tbody tr[id]:visible")
    assert 0 < shown.count() < 10
    assert "undefined symbol" in shown.first.inner_text()
    assert page.locator(".error-table tbody:visible").count() < 4
    field.fill("undefined symbol")
    assert 0 < shown.count() < 10
    assert page.locator(".error-filter output").inner_text().endswith(f" of {total}")
    field.fill("")
    assert shown.count() == total


def test_llms_txt():
    overview = (HTML / "llms.txt").read_text(encoding="utf-8")
    links = dict(re.findall(r"^- \[(.*?)\]\((\S+)\)", overview, re.MULTILINE))
    assert len(links) > 80
    for link in re.findall(r"\]\((\S+)\)", overview):
        assert (HTML / link).is_file(), link
    full = (HTML / "llms-full.txt").read_text(encoding="utf-8")
    titles = re.findall("^# (.*)", full.replace("`", ""), re.MULTILINE)
    assert set(links) <= set(titles)
    assert "```{literalinclude}" not in full

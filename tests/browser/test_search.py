"""The site's search and its table of errors, as a reader uses them."""

import html
import re
from functools import cache

from conftest import HTML

# What a reader types, and the page that answers. Several pages when each one does.
QUERIES = {
    "getting started": "guide/1_first_operator",
    "in-place": "howto/mutate_an_input",
    "mutates_args": "howto/mutate_an_input",
    "AMD": "howto/port_to_hip",
    "cuda to rocm": "howto/port_to_hip",
    "CUDA kernel": "guide/3_gpu_kernel",
    "register_autograd": "guide/7_autograd",
    "custom backward": "guide/7_autograd reduction/4_gradient",
    "undefined symbol": "reference/errors howto/bind_three_ways howto/find_a_fault",
    "fake tensor": "howto/compile_without_graph_breaks reference/glossary",
    "torch.compile graph break": "howto/compile_without_graph_breaks",
    "multiple outputs": "howto/return_several_outputs",
    "return a tuple of tensors": "howto/return_several_outputs",
    "nonzero unique dynamic shape": "howto/return_a_shape_that_depends_on_data",
    "pybind11": "howto/bind_three_ways",
    "mixed precision": "howto/work_with_vmap_and_autocast",
    "batching rule": "howto/work_with_vmap_and_autocast",
    "sharding distributed": "howto/work_with_tensor_subclasses",
    "activation checkpointing": "howto/save_memory",
    "saved tensors memory": "howto/save_memory",
    "dropped by the compiler": "howto/keep_a_side_effect",
    "manylinux": "howto/ship_a_wheel",
    "torch.export AOTInductor": "howto/ship_a_wheel",
    "py_limited_api abi3": "explain/the_stable_abi reference/build_flags",
    "nsight compute": "howto/profile",
    "compute-sanitizer": "howto/check_memory",
    "how to time a kernel": "howto/benchmark_honestly",
    "github actions": "howto/run_ci_on_a_gpu",
    "TORCH_CUDA_ARCH_LIST": "howto/configure_the_build",
    "slow build ccache": "howto/configure_the_build",
    "segfault": "howto/find_a_fault",
    "gdb": "howto/step_through_a_kernel",
    "metal": "howto/support_xpu_and_mps",
    "cmake": "dispatch/build_without_setuptools",
    "PrivateUse1": "dispatch/bring_a_backend",
    "replace torch.mm": "dispatch/override_an_aten_operator",
    "TORCH_LIBRARY_FRAGMENT": "dispatch/share_a_namespace",
    "cuda stream": "explain/streams",
    "memory bound": "explain/roofline",
    "cutlass": "howto/reach_for_a_library",
    "race condition": "howto/avoid_kernel_pitfalls",
    "run triton without a gpu": "triton/9_interpreter triton/10_ahead_of_time",
    "autotune": "triton/14_autotune examples/70_autotune_in_triton",
    "optional tensor argument": "reference/schema_language howto/design_the_interface",
    "non-contiguous input": "explain/strides dispatch/handle_edge_cases",
    "gradcheck": "howto/write_the_tests reduction/4_gradient",
    "project template": "guide/8_your_own howto/follow_the_checklist",
    "coding assistant": "howto/teach_an_agent",
}

# What a reader pastes, under the part of it that a page with this message shows.
MESSAGES = {
    "undefined symbol": (
        "ImportError: "
        "/home/anna/.venv/lib/python3.12/site-packages/fastnorm/_C.abi3.so: "
        "undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
    ),
    "recompile with -fPIC": (
        "/usr/bin/ld: /tmp/tmpx8k2/build/norm.o: relocation R_X86_64_PC32 against "
        "symbol `stderr@@GLIBC_2.2.5' can not be used when making a shared object; "
        "recompile with -fPIC"
    ),
    "object has no attribute": (
        "AttributeError: '_OpNamespace' 'fastnorm' object has no attribute 'fused_norm'"
    ),
    "Could not run '": (
        "NotImplementedError: Could not run 'fastnorm::fused_norm' with arguments "
        "from the 'CUDA' backend. This could be because the operator doesn't exist "
        "for this backend, or was omitted during the selective/custom build process "
        "(if using custom build)."
    ),
    "running with fake": (
        "torch._dynamo.exc.Unsupported: Operator does not support running with fake "
        "tensors\n  Explanation: unsupported operator: "
        "fastnorm.fused_norm.default\n  Hint: see "
        "https://docs.google.com/document/d/1GgvOe7C8"
    ),
    "no fake impl registered": (
        "NotImplementedError: There was no fake impl registered for "
        "<CustomOpDef(fastnorm::fused_norm)>. This is necessary for "
        "torch.compile/export/fx tracing to work. Please use "
        "`fused_norm_impl.register_fake` to add an fake impl."
    ),
    "no autograd formula was registered": (
        "RuntimeError: Trying to backward through fastnorm.fused_norm.default but no "
        "autograd formula was registered. Please use register_autograd to add one."
    ),
    "a single TORCH_L": (
        "RuntimeError: Only a single TORCH_LIBRARY can be used to register the "
        "namespace fastnorm; please put all of your definitions in a single "
        "TORCH_LIBRARY block. Previous registration of TORCH_LIBRARY was registered "
        "at /workspace/csrc/a.cpp:12; latest registration was registered at "
        "/workspace/csrc/b.cpp:9"
    ),
    "same name and overload name multiple": (
        "RuntimeError: Tried to register an operator (fastnorm::fused_norm(Tensor x, "
        "float eps) -> Tensor) with the same name and overload name multiple times. "
        "Each overload's schema should only be registered with a single call to "
        "def(). Duplicate registration: registered at /workspace/csrc/ops.cpp:31. "
        "Original registration: registered at /dev/null:241"
    ),
    "Jacobian mismatch": (
        "torch.autograd.gradcheck.GradcheckError: Jacobian mismatch for output 0 "
        "with respect to input 0,\nnumerical:tensor([[0.9980, 0.0000],\n        "
        "[0.0000, 0.9980]])\nanalytical:tensor([[2., 0.],\n        [0., 2.]])"
    ),
    "Unsupported gpu arch": "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "No module named 'torch'": (
        "Getting requirements to build wheel did not run successfully. exit code: 1 "
        'File "/tmp/pip-build-env-kq3x/overlay/setup.py", line 5, in <module> import '
        "torch ModuleNotFoundError: No module named 'torch'"
    ),
    "maximum recursion depth exceeded": (
        '  File "/opt/conda/lib/python3.11/site-packages/torch/_ops.py", line 829, '
        "in __call__\n    return self._op(*args, **kwargs)\nRecursionError: maximum "
        "recursion depth exceeded while calling a Python object"
    ),
    "cannot open shared object file": (
        "OSError: libc10.so: cannot open shared object file: No such file or directory"
    ),
    "define module export function": (
        "ImportError: dynamic module does not define module export function "
        "(PyInit_fused_norm)"
    ),
    "not implemented for '": (
        "RuntimeError: \"fused_norm_cpu\" not implemented for 'BFloat16'"
    ),
    "modified by an inplace operation": (
        "RuntimeError: one of the variables needed for gradient computation has been "
        "modified by an inplace operation: [torch.cuda.FloatTensor [32, 4096]], "
        "which is output 0 of SoftmaxBackward0, is at version 2; expected version 1 "
        "instead."
    ),
    "invalid configuration argument": (
        "RuntimeError: CUDA error: invalid configuration argument\nCUDA kernel "
        "errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect."
    ),
    "heap-buffer-overflow": (
        "==31337==ERROR: AddressSanitizer: heap-buffer-overflow on address "
        "0x60b000001a38 at pc 0x7f3c2e1a5b2c bp 0x7ffd2b0 sp 0x7ffd2a8 READ of size "
        "4 at 0x60b000001a38 thread T0"
    ),
    "must be a power of 2": (
        "triton.compiler.errors.CompilationError: at 9:14:\n    offsets = pid * "
        "BLOCK + tl.arange(0, BLOCK)\nValueError: arange's range must be a power of 2"
    ),
    "0 active drivers": (
        "RuntimeError: 0 active drivers ([]). There should only be one."
    ),
    "have a type annot": (
        "ValueError: infer_schema(func): Parameter alpha must have a type "
        "annotation. Got func with signature (x: torch.Tensor, alpha) -> "
        "torch.Tensor)"
    ),
    "save_for_backward can only save": (
        "TypeError: save_for_backward can only save variables, but argument 2 is of "
        "type int"
    ),
    "is not a supported wheel": (
        "ERROR: fastnorm-0.1.0-cp312-cp312-linux_x86_64.whl is not a supported wheel "
        "on this platform."
    ),
    "unknown argument: '-gencode'": "clang++: error: unknown argument: '-gencode'",
    "returned an incorrect number of gradients": (
        "RuntimeError: function FusedNormBackward returned an incorrect number of "
        "gradients (expected 3, got 2)"
    ),
    "Could not guard on data-dependent": (
        "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could "
        "not guard on data-dependent expression Eq(u0, 0) (unhinted: Eq(u0, 0)).  "
        "(Size-like symbols: u0)"
    ),
    "has no member named": (
        "csrc/norm.cpp:57:31: error: ‘const class torch::stable::Tensor’ has no "
        "member named ‘const_data_ptr’; did you mean ‘data_ptr’?"
    ),
    "does not have a sharding strategy": (
        "NotImplementedError: Operator fastnorm.fused_norm.default does not have a "
        "sharding strategy registered."
    ),
    "BFloat16.h": (
        "csrc/norm.cu:3:10: fatal error: torch/headeronly/util/BFloat16.h: No such "
        "file or directory\n    3 | #include <torch/headeronly/util/BFloat16.h>\n"
        "compilation terminated."
    ),
    "no suitable constructor": (
        "csrc/norm.cu(41): error: no suitable constructor exists to convert from "
        '"int" to "__half"'
    ),
    "more than one element of the written-to": (
        "RuntimeError: unsupported operation: more than one element of the "
        "written-to tensor refers to a single memory location. Please clone() the "
        "tensor before performing the operation."
    ),
    "test_faketensor failed with": (
        "torch.testing._internal.optests.generate_tests.OpCheckError: opcheck(op, "
        "...): test_faketensor failed with Stride mismatch! Strides are (1, 4) and "
        "(3, 1) at index 0"
    ),
    "Tensor-likes are not close": (
        "E   AssertionError: Tensor-likes are not close!\nE   \nE   Mismatched "
        "elements: 3 / 4096 (0.1%)\nE   Greatest absolute difference: 0.0039 at "
        "index (7, 12) (up to 1e-05 allowed)"
    ),
}


FIELD = "#pst-search-dialog input"
HITS = "#pst-search-dialog .search-hits"


@cache
def texts():
    """What each page of the site says, by name."""
    found = {}
    for path in HTML.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        article = page[page.find("<article") : page.rfind("</article>")]
        text = " ".join(html.unescape(re.sub("<[^>]*>", "", article)).split())
        found[path.relative_to(HTML).with_suffix("").as_posix()] = text
    return found


def results(page):
    """The pages that the search lists, when it has what is in its field."""
    page.wait_for_function(
        "([hits, field]) => document.querySelector(hits)?.dataset.query"
        " === document.querySelector(field).value",
        arg=[HITS, FIELD],
    )
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


def test_a_pasted_message_finds_its_page(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/index.html")
    page.keyboard.press("Control+k")
    ranks = {}
    for part, message in MESSAGES.items():
        page.evaluate("text => navigator.clipboard.writeText(text)", message)
        page.fill(FIELD, "")
        page.keyboard.press("Control+v")
        right = {name for name, text in texts().items() if part in text}
        ranks[part] = rank(results(page), right | {"reference/errors"})
    check(ranks)


def test_the_search_works_from_a_file(page):
    page.goto((HTML / "howto/index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("pybind")
    assert results(page)[0] == "howto/bind_three_ways"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/howto/bind_three_ways.html*")
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
    field.fill("fused_norm: undefined symbol: _ZN3c10")
    shown = page.locator(".error-table tbody tr[id]:visible")
    assert 0 < shown.count() < 10
    assert "undefined symbol" in shown.first.inner_text()
    assert page.locator(".error-table tbody:visible").count() < 4
    assert page.locator(".error-filter output").inner_text().endswith(f" of {total}")
    field.fill("")
    assert shown.count() == total


def test_llms_txt():
    overview = (HTML / "llms.txt").read_text(encoding="utf-8")
    links = dict(re.findall(r"^- \[(.*?)\]\((\S+)\)", overview, re.MULTILINE))
    assert len(links) > 80
    assert all((HTML / link).is_file() for link in links.values())
    full = (HTML / "llms-full.txt").read_text(encoding="utf-8")
    titles = re.findall("^# (.*)", full.replace("`", ""), re.MULTILINE)
    assert set(links) <= set(titles)
    assert "```{literalinclude}" not in full

"""main and h-lib side by side, and what h-lib's ablation says: one table of all cases.

Lies in a folder of a checkout: uses its benchmarks/gpu and its sources/ablation.
"""
import json, os, random, shutil, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import torch, torch.nn.functional as F
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "benchmarks/gpu"), str(HERE)]
import clock, nvcc
import ablation
ablation.ROOT = ROOT
BUILD = HERE / "build"
ROUNDS = int(os.environ.get("ROUNDS", 31))
FORWARD, BACKWARD = "rms_norm/rms_norm", "rms_norm/rms_norm_backward"
V = ablation.VARIANTS
H, VEC = f"{FORWARD}.h", "vectors.h"
NORMAL = [(VEC, "st.global.L2::cache_hint.v4", "st.global.v4"), (VEC, "%4}, %5;", "%4};")]
V["reads evicted first instead of the hint"] = [*NORMAL, (H,
    "for_each([&](int k, int i) { loaded[k] = pack(*columns.at(row, i)); });",
    """for_each([&](int k, int i) {
        if constexpr (sizeof(Input) == 16) {
          const uint4 read = __ldcs(reinterpret_cast<const uint4*>(columns.at(row, i)));
          __builtin_memcpy(loaded[k].words, &read, 16);
        } else {
          loaded[k] = pack(*columns.at(row, i));
        }
      });""")]
EARLY = [(H, "  kept.load_weight(weight);\n  kept.store_scaled", "  kept.store_scaled"),
         (H, "  if constexpr (!std::is_empty_v<Added>) {\n    kept.add(", "  kept.load_weight(weight);\n  if constexpr (!std::is_empty_v<Added>) {\n    kept.add(")]
V["weight before the sum"] = EARLY
KNOWN = """__shared__ __align__(16) acc_t few_sums[kFewRowsThreads / kWarpSize];
  sum_of_squares = warp_sum(sum_of_squares);
  if (threadIdx.x % kWarpSize == 0) few_sums[threadIdx.x / kWarpSize] = sum_of_squares;
  __syncthreads();
  acc_t total = 0;
#pragma unroll
  for (int w = 0; w < kFewRowsThreads / kWarpSize; ++w) total += few_sums[w];
  const acc_t scale = problem.scale(total);
  if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
  for_each_vector("""
FEW = (H, """const acc_t scale = problem.scale(block_sum(sum_of_squares));
  if (rrms != nullptr && threadIdx.x == 0) rrms[row] = scale;
  for_each_vector(""", KNOWN)
V["few rows: 512 threads, known sum"] = [FEW, (H, "dim3(threads_for(threads))", "dim3(kFewRowsThreads)")]
V["few rows: 256 threads, known sum (to 4096)"] = [FEW,
    (H, "kFewRowsThreads = 512", "kFewRowsThreads = 256"),
    (H, "(adds ? 512 : 1024) && has_weight", "(adds ? 256 : 512) && has_weight"),
    (H, "dim3(threads_for(threads))", "dim3(kFewRowsThreads)")]
V["main"] = []
EXTRA = [(1, 4097), (16, 4097), (64, 643), (200, 3001), (100, 70), (868, 1536), (300, 8192), (500, 4096), (500, 1000),
         (4000, 376), (1000, 4000), (3000, 1500), (20000, 300), (2000, 24000), (300, 24000)]
SHAPES = ablation.SHAPES + EXTRA

def folder_of(name):
    to = BUILD / name.replace(" ", "_").replace(",", "")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(HERE / ("main" if name == "main" else "lib"), to)
    shutil.copy(HERE / "ablation.cu", to)
    for file, old, new in V[name]:
        text = (to / file).read_text()
        assert old in text, (name, file, old)
        (to / file).write_text(text.replace(old, new))
    return to

def changes(name, task):
    files = [f for f, _, _ in V[name]]
    if not files or {"columns.h", "vectors.h"} & set(files): return True
    return any(f.startswith(BACKWARD) == (task == "backward") for f in files)

def main():
    names = list(V)
    folders = {n: folder_of(n) for n in names}
    if not clock.GPU:
        print(len(folders), "variants made; no GPU"); return
    with ThreadPoolExecutor(8) as pool: list(pool.map(ablation.compile_variant, folders.values()))
    rows = []
    with torch.no_grad():
        for shape in SHAPES:
            torch.manual_seed(0)
            x, other = (torch.randn(shape, device="cuda").bfloat16() for _ in range(2))
            w = torch.randn(shape[1], device="cuda").bfloat16()
            rrms = torch.rsqrt(x.float().square().mean(-1) + ablation.EPS)
            tensors = {"x": x, "other": other, "weight": w, "rrms": rrms}
            made = {n: ablation.calls(f, shape[0], tensors) for n, f in folders.items()}
            for task in made["all"]:
                whole = made["all"][task]()
                turns = {n: m[task] for n, m in made.items() if changes(n, task)}
                for n, run in turns.items():
                    for got, want in zip(run(), whole, strict=True):
                        torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-7 * want.abs().max().item(), msg=f"{n} {task} {shape}")
                if task == "forward": turns["eager"] = lambda: F.rms_norm(x, shape[1:], w, ablation.EPS)
                for n, t in clock.take_turns(turns, ROUNDS).items():
                    rows.append({"task": task, "shape": shape, "without": n, "clean": t["median"], "dirty": t["dirty median"]})
            del x, other, made, turns, whole
            if out := os.environ.get("OUT"): Path(out, "compare.json").write_text(json.dumps(rows))
    whole = {(r["task"], r["shape"]): r for r in rows if r["without"] == "all"}
    print("time over that of h-lib, clean/dirty; first: h-lib's microseconds")
    by = {(r["task"], r["shape"], r["without"]): r for r in rows}
    for (task, shape), w in whole.items():
        line = f"{task:8} {shape[0]}x{shape[1]:<6} {w['clean']:7.1f} {w['dirty']:7.1f}"
        for n in ("main", "eager"):
            if r := by.get((task, shape, n)): line += f"  {n} {r['clean']/w['clean']:.3f}/{r['dirty']/w['dirty']:.3f}"
        for n in V:
            r = by.get((task, shape, n))
            if n in ("all", "main") or not r: continue
            a, b = r["clean"]/w["clean"], r["dirty"]/w["dirty"]
            if min(a, b) > 1.02 or max(a, b) < 0.98: line += f"  [{n} {a:.3f}/{b:.3f}]"
        print(line)

if __name__ == "__main__": main()

"""Are the GPU kernels right, and how fast are they, on this machine?

    python bench/gpu_check.py [--quick]        on a machine with CUDA
    python bench/gpu_check.py --dry-run        on any machine: everything but the timing

Needs torch (2.11 or newer), triton and numpy, and FlashInfer with nvcc for the FlashInfer
kernel; neither SGLang nor a network. Prints one line per correctness case and a Markdown
table of times, and exits with 1 if a case fails or a kernel does not run.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DRY = "--dry-run" in sys.argv
if DRY:  # before triton is imported, which happens below
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from runtime_patch.attention.flashinfer import kernel as flashinfer_kernel  # noqa: E402
from runtime_patch.attention.kernel import Kernel  # noqa: E402
from runtime_patch.attention.plan import Plan, build_plan  # noqa: E402
from runtime_patch.attention.reference import Reference  # noqa: E402
from runtime_patch.attention.rope import Rope  # noqa: E402
from runtime_patch.attention.triton import kernel as triton_kernel  # noqa: E402
from runtime_patch.attention.views import Segment, View  # noqa: E402
from runtime_patch.errors import KernelUnavailable  # noqa: E402

# Largest difference from float64, as a part of the largest output.
TOLERANCE = {torch.bfloat16: 1.2e-2, torch.float16: 1.6e-3, torch.float32: 3e-5}
LIVE, HEADER, STEP, PROMPT = 48, 6, 128, 512


@dataclass(frozen=True)
class Model:
    name: str
    heads: int
    kv_heads: int
    dim: int

    def rope(self, neox: bool = True, rotary_dim: int | None = None) -> Rope:
        half = (rotary_dim or self.dim) // 2
        return Rope(1e6 ** -(torch.arange(half, dtype=torch.float64) / half), neox)

    def tensors(self, rows: int, slots: int, dtype: torch.dtype, device: torch.device):
        draw = torch.Generator(device).manual_seed(rows + slots)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=draw, device=device, dtype=dtype)

        q = normal(rows, self.heads, self.dim)
        cache = (slots, self.kv_heads, self.dim)
        return q, normal(*cache), normal(*cache)


MODELS = (Model("QwQ-32B", 40, 8, 128), Model("Qwen3-8B", 32, 8, 128))


@dataclass(frozen=True)
class Scene:
    """A team whose workers each see ``keys`` keys: prompt, published steps of ``step``
    tokens, the others' live steps, their own. Beside it, prefills of ordinary requests.

    opening: new tokens of each worker in this forward.
    far: RoPE position of the prompt, to reach large angles.
    """

    workers: int
    keys: int
    step: int = STEP
    opening: int = 1
    far: int = 0
    prefills: tuple[int, ...] = ()

    def plan(self, device: torch.device) -> tuple[Plan, int]:
        """The plan, and how many slots its cache has."""
        draw = random.Random(self.keys)
        live = max(self.opening, min(LIVE, self.keys // (4 * self.workers)))
        history = max(1, self.keys - self.workers * live - 2 * HEADER)
        prompt = min(PROMPT, max(1, history // 2))
        lengths = [prompt]
        while sum(lengths) < history:
            lengths.append(min(self.step, history - sum(lengths)))
        total = history + 2 * HEADER + self.workers * live + sum(self.prefills)
        slots = torch.randperm(total, generator=torch.Generator().manual_seed(self.keys)).to(device)
        taken = 0

        def segment(key, length: int, base: int) -> Segment:
            nonlocal taken
            taken += length
            return Segment(key, slots[taken - length : taken], base)

        base, past = self.far, []
        for number, length in enumerate(lengths):
            past.append(segment(("history", number), length, base))
            base += length + draw.randint(0, 300) * (number > 0)
        others, own = segment("others", HEADER, 0), segment("own", HEADER, 9)
        lives = [segment(("live", w), live, base) for w in range(self.workers)]
        views = [
            View(
                self.opening,
                base + live - self.opening,
                (*past, others, *lives[:w], *lives[w + 1 :], own, lives[w]),
            )
            for w in range(self.workers)
        ]
        for number, length in enumerate(self.prefills):
            views.append(View(length, 0, (segment(("prefill", number), length, 0),)))
        return build_plan(views), total


@dataclass(frozen=True)
class Case:
    name: str
    scene: Scene
    model: Model
    dtype: torch.dtype
    neox: bool = True
    rotary_dim: int | None = None

    def difference(self, kernel: Kernel, device: torch.device) -> tuple[float, float]:
        """Largest difference from the reference in float64, and the largest output."""
        plan, slots = self.scene.plan(device)
        rope = self.model.rope(self.neox, self.rotary_dim)
        q, k, v = self.model.tensors(plan.num_rows, slots, self.dtype, device)
        scale = self.model.dim**-0.5
        exact = Reference()(plan.to(device), q.double(), k.double(), v.double(), rope, scale)
        out = kernel(plan, q, k, v, rope, scale).double()
        return float((out - exact).abs().max()), float(exact.abs().max())


def cases(dry: bool, quick: bool) -> list[Case]:
    big = Model("small", 5, 1, 32) if dry else MODELS[0]
    # one head dimension: FlashInfer builds a module for each, and for each dtype
    tiny = Model("tiny", 6, 2, big.dim)
    keys = 200 if dry else 6000
    halves = (torch.float16,) if dry else (torch.bfloat16, torch.float16)[: 1 if quick else 2]
    found = []
    for dtype in (*halves, torch.float32):
        found += [
            Case("decode, 4 workers", Scene(4, keys), big, dtype),
            Case("decode at 128k positions", Scene(2, keys, far=120_000), big, dtype),
            Case("steps open, 3 workers", Scene(3, keys, opening=7), tiny, dtype),
            Case("team beside prefills", Scene(2, keys, prefills=(37, 90)), tiny, dtype),
            Case(
                "interleaved pairs, half rotary", Scene(2, keys), tiny, dtype, False, tiny.dim // 2
            ),
        ]
    return found


def check(name: str, kernel: Kernel, device: torch.device, options: argparse.Namespace) -> bool:
    good = True
    for case in cases(options.dry_run, options.quick):
        label = f"{name:10} {str(case.dtype)[6:]:8} {case.name:31}"
        if name == "flashinfer" and case.dtype not in flashinfer_kernel.NAMES:
            continue
        difference, largest = case.difference(kernel, device)
        limit = TOLERANCE[case.dtype] * largest
        right = difference <= limit
        good &= right
        print(f"{label} {difference:.2e} (at most {limit:.2e}) {'ok' if right else 'FAIL'}")
    return good


def flashinfer_decode(model: Model, workers: int, keys: int, dtype, device) -> Callable:
    """As many requests as workers, each with ``keys`` keys of its own."""
    import flashinfer

    q, k, v = model.tensors(workers, workers * keys, dtype, device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(256 << 20, dtype=torch.uint8, device=device),
        "NHD",
        use_tensor_cores=model.heads // model.kv_heads >= 4,
    )
    wrapper.plan(
        torch.arange(workers + 1, dtype=torch.int32) * keys,
        torch.randperm(workers * keys, device=device).int(),
        torch.ones(workers, dtype=torch.int32),
        model.heads,
        model.kv_heads,
        model.dim,
        1,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    return lambda: wrapper.run(q, (k.unsqueeze(1), v.unsqueeze(1)))


def torch_decode(model: Model, workers: int, keys: int, dtype, device) -> Callable:
    """The same on contiguous keys, which is more than a paged cache offers."""
    q, k, v = model.tensors(workers, workers * keys, dtype, device)
    k, v = (t.view(workers, keys, model.kv_heads, model.dim).transpose(1, 2) for t in (k, v))

    def sdpa() -> torch.Tensor:
        return scaled_dot_product_attention(q.unsqueeze(2), k, v, enable_gqa=True).squeeze(2)

    return sdpa


def medians(run: dict[str, Callable], device: torch.device, repeats: int) -> dict[str, float]:
    """Milliseconds of each, taken in turn, each from a cold L2 cache. The flush also keeps
    the GPU busy while the launches are queued, so that Python's time is not measured."""
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=device)
    times: dict[str, list[float]] = {name: [] for name in run}
    for turn in range(repeats + 3):
        for name, call in run.items():
            flush.zero_()
            flush.zero_()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            call()
            after.record()
            torch.cuda.synchronize(device)
            if turn >= 3:
                times[name].append(before.elapsed_time(after))
    return {name: statistics.median(values) for name, values in times.items()}


def table(kernels: dict[str, Kernel], device: torch.device, options: argparse.Namespace) -> None:
    dtype = torch.float32 if options.dry_run else torch.bfloat16
    models = (Model("small", 5, 1, 32),) if options.dry_run else MODELS
    workers = (1, 2) if options.dry_run else (1, 4) if options.quick else (1, 2, 4, 8)
    keys = (64,) if options.dry_run else (1 << 10, 1 << 14) if options.quick else None
    keys = keys or tuple(1 << shift for shift in range(10, 17))
    paged = device.type == "cuda" and _version("flashinfer-python") != "missing"
    baseline = flashinfer_decode if paged else torch_decode
    other = "FlashInfer decode" if paged else "torch SDPA"
    columns = [*kernels, f"{other}, independent", "best against it"]
    columns += [f"{name}: plan, host" for name in kernels]
    print(f"\nms per layer, {str(dtype)[6:]}, published steps of {options.step} tokens; ", end="")
    print("the plan is made once per forward, in ms of the host\n")
    print(f"| model | workers | keys | {' | '.join(columns)} |")
    print("|---|" + "---:|" * (2 + len(columns)))
    for model in models:
        for count in workers:
            for length in keys:
                line = row(model, count, length, dtype, kernels, baseline, device, options)
                print(f"| {model.name} | {count} | {length} | {' | '.join(line)} |", flush=True)


def row(
    model: Model, workers: int, keys: int, dtype, kernels, baseline, device, options
) -> list[str]:
    plan, slots = Scene(workers, keys, options.step).plan(device)
    q, k, v = model.tensors(workers, slots, dtype, device)
    rope, scale = model.rope(), model.dim**-0.5
    run, host = {}, {}
    for name, kernel in kernels.items():
        kernel(plan, q, k, v, rope, scale)  # builds and compiles
        again, _ = Scene(workers, keys, options.step).plan(device)
        before = time.perf_counter()
        kernel(again, q, k, v, rope, scale)
        host[name] = 1e3 * (time.perf_counter() - before)
        run[name] = lambda kernel=kernel: kernel(plan, q, k, v, rope, scale)
    run["independent"] = baseline(model, workers, keys, dtype, device)
    if options.dry_run:
        for call in run.values():
            call()
        return ["-"] * (len(run) + 1 + len(host))
    times = medians(run, device, 5 if options.quick else 25)
    best = min(times[name] for name in kernels)
    return [
        *(f"{times[name]:.3f}" for name in run),
        f"{times['independent'] / best:.2f}x",
        *(f"{host[name]:.2f}" for name in kernels),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer shapes and repeats")
    parser.add_argument(
        "--dry-run", action="store_true", help="on the CPU, in Triton's interpreter, untimed"
    )
    parser.add_argument(
        "--step", type=int, default=STEP, help="tokens per published step (default %(default)s)"
    )
    options = parser.parse_args()
    if options.step < 1:
        parser.error("--step is at least 1")
    if not DRY and not torch.cuda.is_available():
        parser.error("no CUDA device here; --dry-run checks everything but the timing")
    device = torch.device("cpu" if options.dry_run else "cuda")
    where = "Triton's interpreter" if options.dry_run else torch.cuda.get_device_name()
    print(f"{where}; torch {torch.__version__}, triton {triton.__version__}, ", end="")
    print(f"numpy {numpy.__version__}, flashinfer {_version('flashinfer-python')}")

    kernels: dict[str, Kernel] = {}
    good = True
    for name, module in (("triton", triton_kernel), ("flashinfer", flashinfer_kernel)):
        try:
            kernel = module.create(device)
            good &= check(name, kernel, device, options)
            kernels[name] = kernel
        except KernelUnavailable as error:
            good &= options.dry_run
            print(f"{name:10} not run: {error}")
        except Exception:
            # the other kernel's figures are worth having all the same
            good = False
            traceback.print_exc()
            print(f"{name:10} broke FAIL")
    if kernels:
        table(kernels, device, options)
    print("\nall cases are right" if good else "\nFAIL")
    return 0 if good else 1


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


if __name__ == "__main__":
    sys.exit(main())

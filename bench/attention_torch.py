"""Times torch's scaled_dot_product_attention, or its gradients, on the problems of the attention example.

    PGEMM_REQUIRE_GPU=1 hw_examples _of_ --nocapture --test-threads=1 2>&1 | python3 bench/attention_torch.py

reads the lines that the hardware test prints, repeats each problem with every back end of torch, and prints the
fastest one beside it. Both sides time ten calls after one that does not count, three times, and keep the best. Inputs
are bf16 of the normal distribution. Lines that are no problems are printed as they are.
"""

import math
import re
import sys
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
CALLS = 10
LINE = re.compile(r"(attention|gradients) (head_dim=.*): ([0-9.]+) us, ")


def microseconds(call):
    best = math.inf
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3 / CALLS)
    return best


def fastest(what, problem):
    """The time of the fastest back end and its name, or infinity and the reasons why none works."""
    names = ("sequences", "heads", "kv_heads", "positions", "head_dim")
    sequences, heads, kv_heads, positions, head_dim = (int(problem[name]) for name in names)

    def tensor(heads):
        return torch.randn(sequences, heads, positions, head_dim, device="cuda", dtype=torch.bfloat16)

    q, k, v = tensor(heads), tensor(kv_heads), tensor(kv_heads)
    of_outputs = tensor(heads)
    best, reasons = (math.inf, None), []
    for backend in BACKENDS:
        # Back ends that do not share heads get copies of them, which are not timed.
        for shared in (True, False):
            keys, values = (x if shared else x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
            options = {"is_causal": problem["causal"] == "true", "enable_gqa": shared and heads != kv_heads}
            try:
                inputs = [x.detach().requires_grad_(what == "gradients") for x in (q, keys, values)]
                with sdpa_kernel(backend):
                    call = lambda: scaled_dot_product_attention(*inputs, **options)
                    if what == "gradients":
                        outputs = call()
                        call = lambda: torch.autograd.grad(outputs, inputs, of_outputs, retain_graph=True)
                    time = microseconds(call)
            except RuntimeError as error:
                reasons.append(f"{backend.name}: {error}")
                continue
            best = min(best, (time, backend.name))
            break
    return best if best[1] else (math.inf, "; ".join(reasons))


def main():
    # torch says at length why a back end is not used.
    warnings.filterwarnings("ignore", category=UserWarning)
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    ratios = {}
    # All lines first: the GPU is the test's own until it has ended.
    for line in sys.stdin.readlines():
        found = LINE.search(line)
        if not found:
            print(line, end="")
            continue
        what, words, own = found[1], found[2], float(found[3])
        time, name = fastest(what, dict(word.split("=") for word in words.split()))
        if not math.isfinite(time):
            print(f"{what} {words}: torch cannot: {name}")
            continue
        ratios.setdefault(what, []).append(time / own)
        print(f"{what} {words}: {own:.1f} us, torch {time:.1f} us ({name}), {time / own:.3f}", flush=True)
    for what, all in ratios.items():
        mean = math.exp(sum(map(math.log, all)) / len(all))
        print(f"{len(all)} problems of {what}: torch's time over ours {mean:.3f} (geometric mean), least {min(all):.3f}")


if __name__ == "__main__":
    main()

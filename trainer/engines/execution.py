"""How a step is executed by default: in which precision, and compiled by XLA or not.

On GPUs the default is bf16 where they support it, else fp16, and a compiled step, without which a step is thousands of small
kernels. On CPUs it is float32 without XLA. The choice is a pure function of the settings and the processors, so that it can be
tested without them; the opening lines of a run say it, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.settings import PRECISIONS, EngineSettings

_BF16_CAPABILITY, _FP16_CAPABILITY = (8, 0), (7, 0)  # Ampere, Volta: the first with such matrix units
_BF16_UNITS = {"amx-bf16": "AMX", "avx512bf16": "AVX-512 BF16"}  # of CPUs, the faster first
_NAMES = {"off": "float32", "fp16": "fp16 with loss scaling", "bf16": "bf16"}


@dataclass(frozen=True)
class Processor:
    """A GPU with its compute capability, or a CPU with its features."""

    name: str
    capability: tuple[int, int] | None = None  # of a GPU whose driver tells it
    features: frozenset[str] = frozenset()  # of a CPU, by LLVM's names: amx-bf16, avx512bf16
    is_gpu: bool = False


@dataclass(frozen=True)
class Execution:
    """What was chosen, and why, for people."""

    precision: str  # "off", "fp16" or "bf16"
    xla: bool
    why_precision: str = ""
    why_xla: str = ""
    possible: tuple[str, ...] = PRECISIONS  # precisions that a checkpoint may ask for
    attention: str = ""  # what computes it, where there is a choice

    def resumed(self, precision: str | None) -> Execution:
        """The same in the precision of the checkpoint that a run resumes from, unless another one was asked for."""
        if precision == self.precision or precision not in self.possible:
            return self
        return replace(self, precision=precision, why_precision="as the checkpoint has it")

    def describe(self) -> list[tuple[str, str]]:
        """Rows of the opening lines."""
        rows = [("precision", _NAMES[self.precision], self.why_precision)]
        if self.xla or self.why_xla:
            rows.append(("XLA", "on" if self.xla else "off", self.why_xla))
        if self.attention and self.precision != "off":
            rows.append(("attention", self.attention, ""))
        return [(name, f"{what}: {why}" if why else what) for name, what, why in rows]


def choose_execution(settings: EngineSettings, processors: Sequence[Processor], *, xla_fault: str = "") -> Execution:
    """What the settings ask for, or what suits all of the processors; `xla_fault` is why XLA does not work on them."""
    worst = min(processors, key=lambda each: each.capability or (0, 0))
    possible: tuple[str, ...] = PRECISIONS
    if settings.amp != "auto":
        possible = (settings.amp,)
    elif settings.engine == "oneflow" and not worst.is_gpu:
        possible = ("off",)
    precision, why_precision = _choose_precision(settings, worst)
    xla, why_xla = _choose_xla(settings, worst, xla_fault)
    return Execution(precision, xla, why_precision, why_xla, possible)


def _choose_precision(settings: EngineSettings, processor: Processor) -> tuple[str, str]:
    if settings.amp != "auto":
        return settings.amp, "" if processor.is_gpu else _advice(settings.amp, processor, settings.engine)
    if not processor.is_gpu:
        return "off", "" if settings.engine == "oneflow" else _advice("off", processor, settings.engine)
    if settings.engine == "oneflow":
        return "off", "half precision of OneFlow was never tried on a GPU; --amp fp16 asks for it"
    if processor.capability is None:
        return "off", f"{processor.name} does not tell its compute capability; --amp bf16 or fp16 asks for more"
    if processor.capability >= _BF16_CAPABILITY:
        return "bf16", f"{processor.name} has it (--amp off for float32)"
    if processor.capability >= _FP16_CAPABILITY:
        return "fp16", f"{processor.name} has it, and no bf16 (--amp off for float32)"
    return "off", f"{processor.name} is no faster in half precision"


def _advice(precision: str, cpu: Processor, engine: str) -> str:
    """What a precision means on a CPU; figures are in docs/benchmarks.md."""
    unit = next((name for feature, name in _BF16_UNITS.items() if feature in cpu.features), None)
    if precision == "off":
        return f"this processor has {unit}, with which --amp bf16 is faster" if unit else ""
    if precision == "fp16":
        slower = "slower" if engine == "jax" else "many times slower"
        return f"{slower} than float32, on a CPU" + (f"; --amp bf16 is faster, with {unit}" if unit else "")
    return f"faster than float32, with this processor's {unit}" if unit else "slower than float32, on this processor"


def _choose_xla(settings: EngineSettings, processor: Processor, fault: str) -> tuple[bool, str]:
    if settings.engine == "jax":
        return True, ""
    if settings.xla != "auto":
        is_slow = settings.xla == "on" and not processor.is_gpu
        return settings.xla == "on", "slower than without, on a CPU" if is_slow else ""
    if not processor.is_gpu or settings.engine == "oneflow":
        return False, ""
    if fault:
        return False, f"it does not compile here: {fault}"
    return True, "few kernels instead of thousands in each step (--xla off for a faster start)"


def this_cpu() -> Processor:
    """The processor that this process runs on: its name, where the system knows it, and its features."""
    try:
        from llvmlite import binding as llvm
    except ImportError:  # as where only a framework is installed, for scripts/benchmark_gpu
        known: dict[str, bool] = {}
    else:
        known = llvm.get_host_cpu_features()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    features = frozenset(name for name, has_it in known.items() if has_it)
    return Processor(next(names, "a processor without a name"), features=features)

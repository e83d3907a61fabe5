"""Precision and compiling are chosen by what devices are said to be, and the opening lines say why."""

import pytest

from trainer.engines.execution import Execution, Processor, choose_execution, this_cpu
from trainer.settings import EngineSettings

H100 = Processor("NVIDIA H100", (9, 0), is_gpu=True)
A100 = Processor("NVIDIA A100", (8, 0), is_gpu=True)
T4 = Processor("Tesla T4", (7, 5), is_gpu=True)
V100 = Processor("Tesla V100", (7, 0), is_gpu=True)
P100 = Processor("Tesla P100", (6, 0), is_gpu=True)
UNKNOWN = Processor("Some GPU", is_gpu=True)
CPU = Processor("AMD Ryzen", features=frozenset({"avx512f"}))
EPYC = Processor("AMD EPYC", features=frozenset({"avx512f", "avx512bf16"}))
AMX = Processor("INTEL XEON", features=frozenset({"amx-bf16", "avx512bf16"}))
XLA_ON = "on: few kernels instead of thousands in each step (--xla off for a faster start)"


@pytest.mark.parametrize(
    ("processors", "precision", "said"),
    [
        ([H100], "bf16", "bf16: NVIDIA H100 has it (--amp off for float32)"),
        ([A100, A100], "bf16", "bf16: NVIDIA A100 has it (--amp off for float32)"),
        ([H100, T4], "fp16", "fp16 with loss scaling: Tesla T4 has it, and no bf16 (--amp off for float32)"),
        ([V100], "fp16", "fp16 with loss scaling: Tesla V100 has it, and no bf16 (--amp off for float32)"),
        ([P100], "off", "float32: Tesla P100 is no faster in half precision"),
        ([H100, UNKNOWN], "off", "float32: Some GPU does not tell its compute capability; --amp bf16 or fp16 asks for more"),
    ],
)
def test_gpus_get_the_fastest_precision_that_all_have_and_a_compiled_step(
    processors: list[Processor], precision: str, said: str
) -> None:
    chosen = choose_execution(EngineSettings(), processors)
    assert (chosen.precision, chosen.xla) == (precision, True)
    assert chosen.describe() == [("precision", said), ("XLA", XLA_ON)]


def test_what_is_asked_for_is_done() -> None:
    assert choose_execution(EngineSettings(amp="off", xla="off"), [H100]).describe() == [("precision", "float32")]
    chosen = choose_execution(EngineSettings(amp="bf16", xla="on"), [P100])
    assert chosen.describe() == [("precision", "bf16"), ("XLA", "on")]


def test_a_gpu_for_which_xla_compiles_nothing_goes_without() -> None:
    chosen = choose_execution(EngineSettings(), [H100], xla_fault="libdevice not found")
    assert chosen.describe()[1] == ("XLA", "off: it does not compile here: libdevice not found")
    assert choose_execution(EngineSettings(xla="on"), [H100], xla_fault="libdevice not found").xla


@pytest.mark.parametrize(
    ("asked", "cpu", "said"),
    [
        ("auto", CPU, "float32"),
        ("auto", AMX, "float32: this processor has AMX, with which --amp bf16 is faster"),
        ("auto", EPYC, "float32: this processor has AVX-512 BF16, with which --amp bf16 is faster"),
        ("bf16", CPU, "bf16: slower than float32, on this processor"),
        ("bf16", EPYC, "bf16: faster than float32, with this processor's AVX-512 BF16"),
        ("bf16", AMX, "bf16: faster than float32, with this processor's AMX"),
        ("fp16", CPU, "fp16 with loss scaling: many times slower than float32, on a CPU"),
        (
            "fp16",
            AMX,
            "fp16 with loss scaling: many times slower than float32, on a CPU; --amp bf16 is faster, with AMX",
        ),
    ],
)
def test_a_cpu_computes_in_float32_and_says_what_else_would_cost(asked: str, cpu: Processor, said: str) -> None:
    chosen = choose_execution(EngineSettings(amp=asked), [cpu])
    assert chosen.precision == ("off" if asked == "auto" else asked)
    assert chosen.describe() == [("precision", said)]
    assert choose_execution(EngineSettings(xla="on"), [CPU]).describe()[1] == ("XLA", "on: slower than without, on a CPU")


def test_jax_compiles_every_step() -> None:
    for processor in (H100, CPU):
        assert choose_execution(EngineSettings(engine="jax"), [processor]).xla
    assert choose_execution(EngineSettings(engine="jax"), [H100, T4]).precision == "fp16"
    assert choose_execution(EngineSettings(engine="jax"), [AMX]).describe()[0] == (
        "precision",
        "float32: this processor has AMX, with which --amp bf16 is faster",
    )


def test_oneflow_is_left_as_it_was_tried() -> None:
    chosen = choose_execution(EngineSettings(engine="oneflow"), [A100])
    assert chosen.describe() == [
        ("precision", "float32: half precision of OneFlow was never tried on a GPU; --amp fp16 asks for it")
    ]
    assert choose_execution(EngineSettings(engine="oneflow"), [AMX]).describe() == [("precision", "float32")]


@pytest.mark.parametrize(
    ("settings", "processor", "of_checkpoint", "precision"),
    [
        ({}, H100, "off", "off"),  # a run from before there was a default
        ({}, CPU, "bf16", "bf16"),  # moved to another machine
        ({}, H100, None, "bf16"),  # a new run
        ({}, H100, "fp8", "bf16"),
        ({"amp": "bf16"}, H100, "off", "bf16"),  # asked for, so that the checkpoint refuses it
        ({"engine": "oneflow"}, A100, "fp16", "fp16"),
        ({"engine": "oneflow"}, CPU, "fp16", "off"),  # which it cannot compute
    ],
)
def test_a_checkpoint_binds_a_run_to_its_precision(
    settings: dict[str, str], processor: Processor, of_checkpoint: str | None, precision: str
) -> None:
    chosen = choose_execution(EngineSettings(**settings), [processor])  # type: ignore[arg-type]
    resumed = chosen.resumed(of_checkpoint)
    assert resumed.precision == precision
    assert (resumed.why_precision == "as the checkpoint has it") == (precision != chosen.precision)


def test_this_processor_has_a_name_and_features() -> None:
    cpu = this_cpu()
    assert cpu.name
    assert not cpu.is_gpu
    assert cpu.features
    assert choose_execution(EngineSettings(), [cpu]) == Execution(
        "off", xla=False, why_precision=choose_execution(EngineSettings(), [cpu]).why_precision
    )

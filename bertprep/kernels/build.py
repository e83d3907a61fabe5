"""Compiles the kernels: links the LLVM code that numba makes for each of them into one object file, which needs no numba.

Kernels return negative numbers instead of raising, so calls into Python's runtime are never reached, and are linked to a trap.
"""

import importlib
import json
from collections.abc import Sequence
from typing import Any

from llvmlite import binding as llvm

from bertprep.kernels.language import KernelSource

_FROM_THE_SYSTEM = {"memcpy", "memmove", "memset", "mmap", "sigaction", "raise"}


def compile_kernels(sources: Sequence[str]) -> bytes:
    """Compile the kernels of these modules; return a line of JSON that describes their interface, then the object file."""
    modules = [importlib.import_module(f"bertprep.kernels.{name}") for name in sources]
    kernels = [item for module in modules for item in vars(module).values() if isinstance(item, KernelSource)]
    interface: dict[str, Any] = {}
    linked = llvm.parse_assembly("")
    for kernel in kernels:
        compiled = kernel.compile()
        module = llvm.parse_assembly(compiled.inspect_llvm())
        module.verify()
        linked.link_in(module)
        interface[kernel.name] = {
            "symbol": compiled.native_name,
            "result": kernel.result,
            "parameters": kernel.parameters,
            "conditions": kernel.conditions,
            "extents": kernel.extents,
        }
    linked.link_in(llvm.parse_assembly(_traps_for(linked)))
    linked.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
        codemodel="jitdefault",
    )
    machine_code: bytes = machine.emit_object(linked)
    return json.dumps(interface).encode() + b"\n" + machine_code


def undefined_symbols(module: llvm.ModuleRef) -> tuple[list[str], list[str]]:
    """Return the names of functions and of variables that a module uses but does not define, except functions of the OS."""
    functions = [
        f.name
        for f in module.functions
        if f.is_declaration and not f.name.startswith("llvm.") and f.name not in _FROM_THE_SYSTEM
    ]
    return functions, [v.name for v in module.global_variables if v.is_declaration]


def _traps_for(module: llvm.ModuleRef) -> str:
    functions, variables = undefined_symbols(module)
    body = "{\n  call void @llvm.trap()\n  unreachable\n}"
    return "\n".join(
        [
            "declare void @llvm.trap()",
            *(f'define linkonce_odr void @"{name}"() {body}' for name in functions),
            *(f'@"{name}" = linkonce_odr global ptr null' for name in variables),
        ]
    )

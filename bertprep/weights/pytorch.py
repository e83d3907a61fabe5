"""Reads the tensors of PyTorch's files, such as pytorch_model.bin, with PyTorch itself.

Only tensors are unpickled (`weights_only`). PyTorch before 2.6 could be made to run code even so, and is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.errors import BertprepError, UsageError, first_line, reading
from bertprep.files.object_cache import local_copy
from bertprep.files.paths import open_head, open_plain
from bertprep.weights.google_names import WeightFile

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80\x02\x8a\x0a"  # as PyTorch writes since 1.6, and as it wrote before
_SAFE_SINCE = (2, 6)
_OF_TRAINERS = ("model", "state_dict", "model_state_dict", "module")
"""The keys under which training scripts save the state of a model, next to that of the optimizer."""


def is_pytorch(path: Path) -> bool:
    with reading(path), open_head(path) as file:
        return file.read(len(_ZIP)) in (_ZIP, _PICKLE)


@contextmanager
def open_pytorch(path: Path) -> Iterator[WeightFile]:
    """Open the floating-point tensors of a state dict; other entries are skipped."""
    torch = _torch(path)
    with reading(path), open_head(path) as file:
        is_zip = file.read(len(_ZIP)) == _ZIP
    try:
        with reading(path), open_plain(local_copy(path)) as copy:
            state = torch.load(copy.name, map_location="cpu", weights_only=True, mmap=is_zip)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, LookupError, TypeError, AttributeError) as error:
        raise BertprepError(
            f"{path}: PyTorch cannot read it as tensors alone ({first_line(error)}); save only the model's state_dict() with "
            "torch.save, or download the file again"
        ) from error
    tensors = _find_tensors(torch, state)
    if not tensors:
        raise BertprepError(f"{path}: has no tensors by name; save the model's state_dict() with torch.save")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield WeightFile(shapes, lambda name: np.array(tensors[name].detach().float().numpy()))


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError(
            f"{path}: is a file of PyTorch, which is needed to read it ({error}): pip install 'bertprep[torch]'"
        ) from error
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if version < _SAFE_SINCE:
        raise UsageError(f"{path}: PyTorch {torch.__version__} cannot read it safely: pip install 'torch>=2.6'")
    return torch


def _find_tensors(torch: Any, state: Any) -> dict[str, Any]:
    for key in _OF_TRAINERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        return {}
    tensors = {name: each for name, each in state.items() if isinstance(name, str) and isinstance(each, torch.Tensor)}
    return {name: each for name, each in tensors.items() if each.is_floating_point()}

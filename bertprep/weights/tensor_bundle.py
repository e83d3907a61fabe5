"""Reads and writes TensorFlow's checkpoints, PREFIX.index and PREFIX.data-00000-of-00001, with TensorFlow itself.

Before 0.12 TensorFlow wrote one file without suffix (V1), which it still reads.

TensorFlow is imported only when such a file is read or written. Weights for a machine without it can be converted elsewhere:

    python -m bertprep.weights.tensor_bundle bert_model.ckpt model.safetensors
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import local_copy
from bertprep.files.paths import as_path, is_object, open_plain, path_arg
from bertprep.terminal import counted, exit_status, print_results, run_program
from bertprep.weights.google_names import WeightFile
from bertprep.weights.hugging_face import save_weights

INDEX_SUFFIX = ".index"
_TABLE_MAGIC = bytes.fromhex("57fb808b247547db")  # the end of V1's only file, which is a table of LevelDB's form
_PROGRAM = "bertprep.weights.tensor_bundle"
_USE = f"python -m {_PROGRAM} bert_model.ckpt model.safetensors"


class MissingTensorFlowError(UsageError):
    """TensorFlow is not installed, or cannot be imported."""


def find_prefix(path: Path) -> Path | None:
    """Return the prefix of a checkpoint from its prefix or the path of one of its files; None if there is no checkpoint."""
    prefix = as_path(re.sub(r"\.(index|data-\d{5}-of-\d{5}|meta)$", "", str(path)))
    return prefix if as_path(f"{prefix}{INDEX_SUFFIX}").is_file() or _is_of_v1(prefix) else None


def _is_of_v1(path: Path) -> bool:
    if is_object(path) or not path.is_file() or path.stat().st_size < len(_TABLE_MAGIC):
        return False
    with open_plain(path) as file:
        file.seek(-len(_TABLE_MAGIC), io.SEEK_END)
        return file.read() == _TABLE_MAGIC


def newest_bundle(folder: Path, released: str) -> Path | None:
    """Return the prefix with the highest step in a folder, such as model.ckpt-300.

    If no name has a step, return the checkpoint named `released`, or else the only one; None if there is none. Raises
    `UsageError` if there are several.
    """
    prefixes = [index.with_name(index.name.removesuffix(INDEX_SUFFIX)) for index in folder.glob(f"*{INDEX_SUFFIX}")]
    steps = {int(match[1]): prefix for prefix in prefixes if (match := re.search(r"-(\d+)$", prefix.name))}
    if steps:
        return steps[max(steps)]
    if folder / released in prefixes or _is_of_v1(folder / released):
        return folder / released
    if len(prefixes) > 1:
        names = ", ".join(sorted(ascii(prefix.name) for prefix in prefixes))
        raise UsageError(f"{folder}: has several TensorFlow checkpoints, {names}; name one of them")
    return prefixes[0] if prefixes else None


def bundle_files(prefix: Path) -> tuple[Path, Path]:
    """Return the paths of the index and of the single data file that `write_bundle` writes."""
    return Path(f"{prefix}{INDEX_SUFFIX}"), Path(f"{prefix}.data-00000-of-00001")


def _tensorflow(prefix: Path) -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingTensorFlowError(
            f"{prefix}: TensorFlow checkpoints need TensorFlow ({error}): pip install 'bertprep[tensorflow]'; or convert it "
            f"on a machine with TensorFlow: python -m bertprep.weights.tensor_bundle {prefix} model.safetensors"
        ) from error
    return tensorflow


@contextmanager
def open_bundle(prefix: Path) -> Iterator[WeightFile]:
    """Open the floating-point variables of a checkpoint, which are read on access."""
    tf = _tensorflow(prefix)
    with _local_bundle(prefix) as local:
        with _explained(tf, prefix):
            reader = tf.train.load_checkpoint(str(local))
            types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()

        def read(name: str) -> NDArray[np.float32]:
            with _explained(tf, prefix):
                return np.asarray(reader.get_tensor(name), np.float32)

        yield WeightFile({name: tuple(shape) for name, shape in shapes.items() if types[name].is_floating}, read)


@contextmanager
def _explained(tf: Any, prefix: Path) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise BertprepError(f"{prefix}: TensorFlow cannot read it ({why}); copy its .index and .data files again") from error


@contextmanager
def _local_bundle(prefix: Path) -> Iterator[Path]:
    if not is_object(prefix):
        yield prefix
        return
    with TemporaryDirectory() as folder:
        for path in prefix.parent.glob(f"{prefix.name}.*"):
            shutil.copyfile(local_copy(path), Path(folder, path.name))
        yield Path(folder, prefix.name)


def write_bundle(prefix: Path, variables: Mapping[str, NDArray[np.float32]]) -> None:
    """Write variables as PREFIX.index and one data file; the index comes last, so a killed run leaves no checkpoint."""
    tf = _tensorflow(prefix)
    names = sorted(variables)
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        bundle_files(prefix)[0].unlink(missing_ok=True)
        with tf.device("CPU"):
            values = [tf.constant(variables[name], tf.float32) for name in names]
            tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    except (tf.errors.OpError, OSError) as error:
        raise BertprepError(f"{prefix}: cannot be written: {' '.join(str(error).split())}") from error


def holds(prefix: Path, variables: Mapping[str, NDArray[np.float32]]) -> bool:
    """Return whether a valid checkpoint with exactly these variables and values exists."""
    if not bundle_files(prefix)[0].is_file():
        return False
    try:
        with open_bundle(prefix) as bundle:
            return bundle.shapes == {name: values.shape for name, values in variables.items()} and all(
                np.array_equal(bundle.read(name), values) for name, values in variables.items()
            )
    except BertprepError:
        return False


def main() -> int:
    """Write the weights of a checkpoint to a safetensors file; both are named on the command line."""
    if len(sys.argv) != 3:
        raise UsageError(f"expected the paths of two files, found {len(sys.argv) - 1}: {_USE}")
    source, target = map(path_arg, sys.argv[1:])
    if target.suffix != ".safetensors":
        raise UsageError(f"{target}: expected a file name that ends in .safetensors: {_USE}")
    if (prefix := find_prefix(source)) is None:
        raise BertprepError(f"{source}: is not a TensorFlow checkpoint, which has a file NAME{INDEX_SUFFIX}: {_USE}")
    if target.exists():
        raise BertprepError(f"{target}: exists already; remove it, or choose another name")
    with open_bundle(prefix) as bundle:
        if not bundle.shapes:
            raise BertprepError(f"{prefix}: has no floating-point variable; name the checkpoint of a model")
        save_weights(target, {name: bundle.read(name) for name in bundle.shapes})
    print_results(f"{target}: {counted(len(bundle.shapes), 'array')}")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(lambda: exit_status(main, _PROGRAM, interrupted="stopped"), _PROGRAM))

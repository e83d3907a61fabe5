"""Run one benchmark: python -m benchmarks NAME --help."""

import importlib
import sys

import benchmarks

NAMES = ("data", "encoders", "step", "losses", "packing", "readme", "example", "picture", "texts", "wikitext")

if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
    print(benchmarks.__doc__)
    sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
sys.argv[:2] = [f"benchmarks {sys.argv[1]}"]
importlib.import_module(f"benchmarks.{sys.argv[0].split()[1]}").main()

"""Turn pip's reports for several Pythons into one constraints file, on standard output.

    python merge_pins.py main-3.10.json main-3.11.json ...

A package that has one version everywhere gets one line; otherwise a line for each run of Pythons with the same version,
with a marker. Names are written as PyPI normalizes them.
"""

import itertools
import json
import re
import sys
from pathlib import Path

HEADER = "# Written by scripts/pin_versions: exact versions for {}, build tools included."


def read_report(path: Path) -> tuple[str, dict[str, str]]:
    """The Python version of a report of `pip install --report` and the version of each package but bertprep."""
    report = json.loads(path.read_text())
    packages = (item["metadata"] for item in report["install"])
    pins = {re.sub(r"[-_.]+", "-", package["name"]).lower(): package["version"] for package in packages}
    del pins["bertprep"]
    return report["environment"]["python_version"], pins


def pin_lines(name: str, versions: dict[str, str], pythons: list[str]) -> list[str]:
    """The lines of one package.

    >>> pin_lines("numpy", {"3.10": "2.2.6", "3.11": "2.5.5", "3.12": "2.5.5"}, ["3.10", "3.11", "3.12"])
    ["numpy==2.2.6; python_version == '3.10'", "numpy==2.5.5; python_version >= '3.11'"]
    """
    if len(set(versions.values())) == 1:
        return [f"{name}=={next(iter(versions.values()))}"]
    lines = []
    for version, group in itertools.groupby((p for p in pythons if p in versions), key=versions.__getitem__):
        run = list(group)
        if len(run) == 1:
            marker = f"python_version == '{run[0]}'"
        elif run[-1] == pythons[-1]:
            marker = f"python_version >= '{run[0]}'"
        else:
            marker = f"python_version >= '{run[0]}' and python_version <= '{run[-1]}'"
        lines.append(f"{name}=={version}; {marker}")
    return lines


def main(paths: list[Path]) -> None:
    reports = dict(sorted(map(read_report, paths), key=lambda report: [int(part) for part in report[0].split(".")]))
    pythons = list(reports)
    print(HEADER.format("Python " + (pythons[0] if len(pythons) == 1 else f"{pythons[0]} to {pythons[-1]}")))
    for name in sorted(set().union(*reports.values())):
        versions = {python: pins[name] for python, pins in reports.items() if name in pins}
        print("\n".join(pin_lines(name, versions, pythons)))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])

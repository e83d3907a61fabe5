"""A device's peak is found by the name that its driver tells, and by no other's."""

import pytest

from trainer.bench.peaks import peak_of


@pytest.mark.parametrize(
    ("device", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("2 x NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200", 989.4),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A100-PCIE-40GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("GRID A100-10C", None),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("NVIDIA B200", None),
        ("NVIDIA A10", 125.0),
        ("NVIDIA A10G", None),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.0),
        ("TPU v5 lite", 197.0),
        ("8 x TPU v5p", 459.0),
        ("4 x CPU", None),
    ],
)
def test_the_peak_of_a_device(device: str, tera: float | None) -> None:
    assert peak_of(device) == (tera and tera * 1e12)

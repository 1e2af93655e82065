"""Architectures: names, what runs where, what is compiled when something is asked for."""

import pytest

from lowlevel.errors import UsageError
from lowlevel.toolchain.arch import ARCHS, loads_as_cubin, parse_arch, runs_on, target_for


@pytest.mark.parametrize("text", ["90", "9.0", "sm_90", "compute_90", "SM_90", " sm_90 ", (9, 0)])
def test_one_architecture_many_spellings(text):
    assert parse_arch(text) == "sm_90"


@pytest.mark.parametrize(
    ("text", "name"),
    [("sm_90a", "sm_90a"), ("90a", "sm_90a"), ("10.3", "sm_103"), ((12, 0), "sm_120"), ("80", "sm_80")],
)
def test_suffixes_and_two_digit_majors(text, name):
    assert parse_arch(text) == name


@pytest.mark.parametrize("text", ["sm_42", "hopper", "", "9", "sm_90b", (3, 5), "sm_100f"])
def test_an_unknown_architecture_is_refused_with_the_known(text):
    with pytest.raises(UsageError, match=r"unknown architecture.*sm_80.*sm_90a"):
        parse_arch(text)


def test_names_say_the_capability():
    for name, arch in ARCHS.items():
        assert name.removeprefix("sm_").removesuffix("a") == "{}{}".format(*arch.capability)


WGMMA, AMPERE, BOTH = ("sm_90a",), ("sm_80",), ("sm_80", "sm_90a")


@pytest.mark.parametrize(
    ("archs", "wanted", "target"),
    [
        (WGMMA, "90", "sm_90a"),
        (WGMMA, "sm_90", "sm_90a"),
        (WGMMA, "compute_90", "sm_90a"),
        (WGMMA, "sm_90a", "sm_90a"),
        (AMPERE, "sm_80", "sm_80"),
        (AMPERE, "sm_90", "sm_90"),
        (AMPERE, "sm_90a", "sm_90a"),
        (AMPERE, "sm_120", "sm_120"),
        (BOTH, "sm_80", "sm_80"),
        (BOTH, "sm_89", "sm_89"),
        (BOTH, "sm_90", "sm_90a"),
        (BOTH, "sm_100", "sm_100"),
        (("sm_100a", "sm_103a"), "sm_103", "sm_103a"),
    ],
)
def test_target(archs, wanted, target):
    assert target_for(archs, wanted) == target


@pytest.mark.parametrize(
    ("archs", "wanted", "why"),
    [
        (WGMMA, "sm_120", "wgmma exists only on sm_90a, so there is no sm_120 build"),
        (WGMMA, "sm_100a", "wgmma exists only on sm_90a"),
        (WGMMA, "sm_80", "wgmma exists only on sm_90a"),
        (AMPERE, "sm_75", "written for sm_80; sm_75 is older"),
        (BOTH, "sm_75", "sm_75 is older"),
        (("sm_100a", "sm_103a"), "sm_90", "its instructions exist only on sm_100a and sm_103a"),
    ],
)
def test_no_target(archs, wanted, why):
    with pytest.raises(UsageError, match=why):
        target_for(archs, wanted)


@pytest.mark.parametrize(
    ("arch", "device", "runs", "loads"),
    [
        ("sm_80", (8, 0), True, True),
        ("sm_80", (8, 6), True, True),
        ("sm_86", (8, 0), False, False),
        ("sm_80", (9, 0), True, False),
        ("sm_90", (8, 9), False, False),
        ("sm_90a", (9, 0), True, True),
        ("sm_90a", (10, 0), False, False),
        ("sm_100a", (10, 3), False, False),
        ("sm_100", (10, 3), True, True),
    ],
)
def test_where_code_runs(arch, device, runs, loads):
    assert runs_on(arch, device) is runs
    assert loads_as_cubin(arch, device) is loads

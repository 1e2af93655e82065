"""The cost model and the advisor: their numbers worked out by hand, what they rank first, what they print."""

import dataclasses
import json
import math
import shlex
from collections import defaultdict
from pathlib import Path

import pytest
from test_cli import run
from test_tuned import TILE as TUNED
from test_tuned import choice

from lowlevel import advise, catalog, hardware, model, tuned
from lowlevel.catalog import fast, space
from lowlevel.catalog.entry import Kernel, Launch
from lowlevel.catalog.rules import column_of_tiles, threads_of_warps
from lowlevel.catalog.select import one_kernel
from lowlevel.catalog.space import admits_mma_tile
from lowlevel.dtypes import BF16, FP8, FP32
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm

ROOT = Path(__file__).parents[2]
H200, A100 = hardware.find("H200"), hardware.find("A100")
TILE = model.Tile(256, 128, 64, 64, 64, 3, 1, 256, 3 * 384 * 64 * 2, 228)


def ring(config, _problem, _limits):
    return config["STAGES"] * (config["BM"] + config["BN"]) * config["BK"] * 2


MMA = Kernel(
    "cuda",
    "gemm/50_mma",
    entry="gemm",
    idea="a stand-in",
    archs=("sm_80",),
    types=(BF16,),
    params=(),
    launch=Launch(block=threads_of_warps, grid=column_of_tiles, shared=ring),
    layouts=("NT",),
    configs=({"BM": 128, "BN": 128, "BK": 32, "WM": 64, "WN": 64, "STAGES": 3},),
    space={"BM": (64, 128, 256), "BN": (64, 128, 256), "BK": (32, 64), "STAGES": (2, 3, 4)},
    admits=admits_mma_tile,
)


def cube(n, type_=BF16):
    return Gemm(n, n, n, type_, "NT")


def test_a_step_by_hand():
    """256 x 128 in bf16: 387 clocks of mma.sync, 256 of fragments and 96 of copies, 192 of the port to the L2."""
    clocks = model.step_clocks(TILE, BF16, 8, 2709)
    assert clocks["arithmetic"] == pytest.approx(387.1, abs=0.1)
    assert clocks["shared memory"] == 256 + 96
    assert clocks["L2"] == 192
    assert model.step_clocks(TILE, BF16, 4, 2709)["arithmetic"] == pytest.approx(387.1 / 0.92, abs=0.1)
    assert model.step_clocks(TILE, FP32, 8, 2709)["arithmetic"] == pytest.approx(387.1 / 2, abs=0.1)


def test_a_round_by_hand():
    problem = Gemm(256, 128, 4096, BF16, "NT")
    step = (387.1**4 + 352**4 + 192**4) ** 0.25
    ends = 1200 + 2 * 384 * 64 * 2 / 64 + 256 * 128 * 2 / 32
    expected = 64 * (4 * step + 20) + ends
    assert model.round_clocks(TILE, problem, 1, 2709) == pytest.approx(expected, rel=1e-3)
    two = dataclasses.replace(TILE, stages=2)
    waiting = 1200 - 0.5 * 4 * step
    assert model.round_clocks(two, problem, 1, 2709) == pytest.approx(
        64 * (4 * step + waiting + 20) + ends - 384 * 64 * 2 / 64, rel=1e-3
    )
    assert model.round_clocks(two, problem, 2, 2709) < 2 * model.round_clocks(two, problem, 1, 2709)
    odd = dataclasses.replace(problem, k=4097, lda=0, ldb=0)
    assert model.round_clocks(TILE, odd, 1, 2709) > model.round_clocks(TILE, problem, 1, 2709)


def test_waves_and_the_last_one():
    found = model.estimate(TILE, cube(4096), H200, 2709)
    assert (found.tiles, found.occupancy.blocks_per_sm) == (512, 1)
    assert found.waves == pytest.approx(512 / 132)
    assert found.tail == pytest.approx(512 / (4 * 132))
    assert found.bound == "arithmetic"
    one_more = model.estimate(TILE, Gemm(256 * 133, 128, 4096, BF16, "NT"), H200, 2709)
    full = model.estimate(TILE, Gemm(256 * 132, 128, 4096, BF16, "NT"), H200, 2709)
    assert one_more.microseconds == pytest.approx(2 * full.microseconds)
    assert (full.tail, one_more.tail) == (1.0, pytest.approx(133 / 264))


@pytest.mark.parametrize(("n", "measured"), [(2048, 464), (4096, 498), (8192, 516)])
def test_the_model_lies_near_what_was_measured(n, measured):
    """TFLOP/s of a 256 x 128 tile on an H200 whose clock power holds near 1740 MHz; the model counts its highest."""
    found = model.estimate(TILE, cube(n), H200, 2709)
    assert found.tflops * 1740 / 1980 == pytest.approx(measured, rel=0.06)


def test_memory_bounds_a_shallow_product_where_it_is_slow():
    slow = dataclasses.replace(A100, memory_clock_mhz=600)
    found = model.estimate(TILE, Gemm(16384, 16384, 16, BF16, "NT"), slow, 2048)
    assert found.bound == "device memory"
    least = (2 * 16384 * 16 + 16384**2) * 2
    assert found.microseconds == pytest.approx(least / hardware.bandwidth(slow) * 1e6)
    large = Gemm(8192, 8192, 8192, BF16, "NT")  # 134 MB a operand: not in an L2 of 60 MiB
    rows, columns = 8, math.ceil(132 / 8)
    read = math.ceil(32 * 64 / 132) * (rows * 256 + columns * 128) * 8192 * 2
    assert model.memory_bytes(TILE, large, H200, 132) == read + 2 * 8192**2
    assert model.memory_bytes(TILE, cube(1024), H200, 132) == 3 * 2 * 1024**2


def test_rates_of_the_instructions():
    assert model.rate(MMA, BF16, A100) == 2048
    assert model.rate(MMA, BF16, H200) == 2709
    assert model.rate(dataclasses.replace(MMA, archs=("sm_90a",)), BF16, H200) == 4096
    assert model.rate(MMA, FP32, H200) == 256
    with pytest.raises(UsageError, match="A100 SXM 80GB has no rate for fp8"):
        model.rate(MMA, FP8, A100)


def test_tiles_of_configurations_with_and_without_warps():
    assert model.warp_tile({"BM": 64, "BN": 64}, 256) == (16, 32)
    assert model.warp_tile({"BM": 64, "BN": 64, "WM": 8, "WN": 64}, 256) == (8, 64)
    tile = model.tile_of(MMA, MMA.configs[0], cube(64), H200)
    assert (tile.threads, tile.shared, tile.registers) == (128, 3 * 256 * 32 * 2, 128 + 64 + 40)
    two = model.tile_of(MMA, {**MMA.configs[0], "BM": 256, "MIN_BLOCKS": 2}, cube(64), H200)
    assert two.registers == 128  # what 2 x 256 threads can have
    assert model.tile_of(MMA, MMA.configs[0], cube(64), H200, 99).registers == 99
    naive = next(k for k in catalog.kernels() if k.label == "cuda:gemm/01_naive")
    with pytest.raises(UsageError, match="no tile of shared memory"):
        model.tile_of(naive, naive.configs[0], Gemm(64, 64, 64, FP32), H200)


def test_large_shapes_take_large_tiles_and_small_ones_small():
    for gpu in (H200, A100):
        large, small = (advise.advise(MMA.variants()[0], cube(n), gpu)[0].variant.config for n in (8192, 1024))
        assert large["BM"] * large["BN"] == 256 * 128
        assert small["BM"] * small["BN"] <= 128 * 128
    ranked = advise.advise(MMA.variants()[0], cube(4096), H200)
    assert [a.estimate.microseconds for a in ranked] == sorted(a.estimate.microseconds for a in ranked)
    assert len(ranked) >= 24
    assert {a.variant.chosen_by for a in ranked} == {"tune"}


def test_the_model_chooses_among_given_configurations():
    wide, small = ({**MMA.configs[0], "BM": 256, "BK": 64}, {**MMA.configs[0], "BM": 64})
    assert model.best(MMA, [small, wide], cube(8192), H200) == wide
    assert model.best(MMA, [wide, small], cube(512), H200) == small
    assert model.best(MMA, [{**wide, "STAGES": 9}], cube(512), H200)["STAGES"] == 9  # no SM holds it: as it came


def test_the_four_rules():
    def broken(n, **change):
        tile = dataclasses.replace(TILE, **change)
        found = model.estimate(tile, cube(n), H200, 2709)
        return tuple(number for number, rule in advise.RULES.items() if rule.broken(found, cube(n), H200))

    assert broken(4096) == (4,)
    assert broken(2048) == (3, 4)
    assert broken(4096, bm=512, wm=128, registers=128) == (1, 3, 4)
    assert broken(4096, bk=4) == (2, 4)
    assert broken(4096, wm=32, wn=32) == ()


def test_the_rules_are_told_with_numbers_and_what_keeping_them_costs():
    ranked = advise.advise(MMA.variants()[0], cube(2048), H200)
    text = advise.rules_text(ranked, cube(2048), H200)
    assert "1. BM x BN at most 32768: " in text
    assert "at least two blocks an SM, 264: 128: broken, and the best that keeps it, " in text
    assert "% slower: the rule does not hold here" in text
    assert "4. at most 64 sums a thread: 128: broken, and no configuration here keeps it" in text
    assert "128 tiles in 1 waves of 132 fill 97 % of the places" in text


def test_the_rules_do_not_speak_of_one_instruction_where_another_multiplies():
    variant, problem = one_kernel("cuda:gemm/26_fp8")[0], cube(2048, FP8)
    text = advise.rules_text(advise.advise(variant, problem, H200), problem, H200)
    assert "an instruction takes 32, which is the floor" in text
    assert "mma.sync" not in text


@pytest.mark.parametrize("name", ["cuda:gemm/25_fast", "cuda:gemm/26_fp8"])
def test_a_kernel_that_counts_its_clocks_is_ranked_by_them(name):
    variant = one_kernel(name)[0]
    kernel, problem = variant.kernel, Gemm(4096, 14336, 4096, variant.type, "NT")
    ranked = advise.advise(variant, problem, H200)
    assert len(ranked) == len(space.tried(kernel, problem, H200))
    assert [c for c in kernel.configs if c not in [a.variant.config for a in ranked]] == []
    for advice in (ranked[0], ranked[1000], ranked[-1]):
        clocks = kernel.clocks(advice.variant.config, problem, H200)
        assert advice.estimate.microseconds == pytest.approx(clocks / 1980)
        assert advice.estimate.own
    assert [a.estimate.microseconds for a in ranked] == sorted(a.estimate.microseconds for a in ranked)
    pairs = next(a.estimate for a in ranked if a.variant.config == kernel.configs[0])
    assert (pairs.tiles, pairs.places, pairs.waves, pairs.tail) == (896, 64, 14.0, 1.0)
    large = next(a.estimate for a in ranked if a.variant.config == kernel.configs[1])
    assert (large.tiles, large.places) == (16 * 38, 64)  # 256 x 192, two along n: 14336 is 37.3 of 384
    assert (large.waves, large.tail) == (pytest.approx(9.5), pytest.approx(0.95))


def test_who_counts_clocks_counts_waves():
    assert [bool(k.clocks) for k in catalog.kernels()] == [bool(k.waves) for k in catalog.kernels()]


@pytest.mark.parametrize(
    "kernel", [k for k in catalog.kernels() if k.owner and "BM" in k.configs[0]], ids=lambda k: k.label
)
def test_the_owner_of_the_last_element_is_the_last_thread_with_sums(kernel):
    for config in {tuple(sorted(c.items())): c for c in (kernel.configs[0], kernel.configs[-1])}.values():
        owners = {kernel.owner(config, i, j) for i in range(config["BM"]) for j in range(config["BN"])}
        assert len(owners) == max(owners) + 1 == model.threads_with_sums(kernel, config, 0)


def test_sums_are_those_of_a_thread_that_has_some():
    """Of 384 threads 256 share a tile, or 128 where two take turns."""
    kernel, problem = one_kernel("cuda:gemm/25")[0].kernel, cube(4096)
    for config in kernel.configs:
        tile = model.tile_of(kernel, config, problem, H200)
        assert tile.wm * tile.wn // 32 == fast.sums_of_a_thread(config)
    producer = one_kernel("cuda:gemm/22")[0].kernel
    tile = model.tile_of(producer, producer.configs[0], problem, H200)
    assert (tile.threads, tile.wm * tile.wn // 32) == (384, 128)


def test_registers_are_no_more_than_a_quarter_of_an_sm_has_for_its_warps():
    """Nine warps are three on one of the quarters, which have 16384 registers each."""
    assert model.estimated_registers(64, 96, 288, 1, BF16, H200) == 168
    assert hardware.occupancy(H200, 288, 168, 0).blocks_per_sm == 1
    assert hardware.occupancy(H200, 288, 176, 0).blocks_per_sm == 0


def test_the_rules_speak_of_clusters_that_stay():
    variant, problem = one_kernel("cuda:gemm/25")[0], Gemm(2048, 3072, 4096, BF16, "NT")
    ranked = advise.advise(variant, problem, H200)
    large = next(a for a in ranked if a.variant.config == variant.kernel.configs[1])
    text = advise.rules_text([large, *ranked], problem, H200)
    assert "at least two tiles for a cluster, since its blocks stay, 128: 64: broken" in text
    assert "64 tiles in 1 waves of 64 fill 100 % of the places, and the busiest cluster has 1 tiles" in text
    assert "at most 64 sums a thread: 192: broken" in text
    assert "A block starts with 168 each, and warps that only copy can hand theirs on" in text


def test_numbers_that_all_have_are_told_once(capsys):
    words = ("4096x14336x4096", "--kernel", "gemm/25", "--dtype", "bf16", "--no-compile")
    code, out, _ = run(capsys, "advise", *words, "--top", "8")
    lines = out.splitlines()
    assert code == 0
    alike = next(line for line in lines if line.startswith("all: "))
    assert "CONSUMERS=2" in alike.removeprefix("all: ").split(", ")
    assert not any("CONSUMERS" in line for line in lines[:12])
    spelled = lines[4].split()[1].split(",")
    assert len(spelled) + len(alike.split(", ")) == 2 + 10  # the tile, the stages, and ten numbers
    assert "A row stands for those, too, which take its tiles in another order.\n" in out
    assert "the kernel's own count of clocks, at 1980 MHz; it ranks configurations, and predicts nothing.\n" in out
    assert " limit " not in lines[2]
    one = run(capsys, "advise", *words, "--top", "1")[1]
    assert "all: " not in one
    assert "CONSUMERS=2" in one.splitlines()[4]


def test_the_command(capsys):
    code, out, _ = run(capsys, "advise", "1024", "--kernel", "gemm/08", "--no-compile", "--top", "5")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("cuda:gemm/08_warp_tile, 1024x1024x1024 fp32 NN on H200: 132 SMs, 227 KiB")
    assert "~" in lines[4]
    assert [line.split()[0] for line in lines[4:9]] == ["1", "2", "3", "4", "5"]
    assert "87 configurations are admitted, of 432 products" in out
    assert "The four rules of thumb" in out
    assert "model us: the cost model of docs/tuning.md; it ranks configurations, and predicts nothing.\n" in out
    assert "measured: " not in out
    assert " limit " in lines[2]
    assert "A row stands for" not in out


def test_orders_of_tiles_are_one_row():
    """Where they make no difference to the count; clusters that take as long are two."""
    (variant,) = one_kernel("cuda:gemm/25[bf16,NT,SNAKE=1]")
    ranked = advise.advise(variant, Gemm(4096, 14336, 4096, BF16, "NT"), H200)
    told = advise.told_apart(ranked)
    assert len(told) < len(ranked) / 6
    assert [a for a in ranked if a in told] == told
    assert {a.variant.config["GROUP"] for a in told[:20]} == {8}
    clusters = defaultdict(set)
    for a in told:
        clusters[a.estimate].add((a.variant.config["CLUSTER_M"], a.variant.config["CLUSTER_N"]))
    assert {(1, 2), (2, 1)} in clusters.values()


def test_what_was_measured_at_exactly_this_shape_is_told(capsys, tuned_folders):
    best = {**TUNED.kernel.configs[0], "STAGES": 3}
    one = dataclasses.replace(choice(1024, 1024, 1024), config=best, vs_best_library=0.97)
    tuned.empty(H200).with_choice(one).save(tuned_folders[0] / "h200.json")
    words = ("--kernel", "gemm/08", "--no-compile", "--top", "1")
    told = f"measured: {dataclasses.replace(TUNED, config=best).config_text} is the stored choice for this shape: "
    told += "9.5 us, 0.970 of the best library's speed, 1.050 of the speed of what would be taken without tuning.\n"
    assert told in run(capsys, "advise", "1024", *words)[1]
    assert "measured: " not in run(capsys, "advise", "1024x1024x1032", *words)[1]
    assert "measured: " not in run(capsys, "advise", "1024", *words, "--gpu", "H100 SXM")[1]


def test_the_command_compiles_what_it_shows(capsys):
    code, out, _ = run(capsys, "advise", "1024", "--kernel", "gemm/04", "--gpu", "A100", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [r["config"]["PAD"] for r in rows] == [1, 0] or [r["config"]["PAD"] for r in rows] == [0, 1]
    for row in rows:
        assert row["registers"] > 0
        assert row["registers_estimated"] is None
        assert row["spills"] == 0
        assert row["shared"] == (4352 if row["config"]["PAD"] else 4096)


def advised_in(page):
    """The words of each line of a page that is an `advise` command."""
    lines = (ROOT / page).read_text().splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("lowlevel advise ")]


DOCUMENTED = [words for page in ("docs/tuning.md", "README.md") for words in advised_in(page)]


def test_the_pages_have_commands_to_try():
    assert len(DOCUMENTED) >= 2


@pytest.mark.parametrize("words", DOCUMENTED, ids=" ".join)
def test_the_pages_commands_work(capsys, words):
    code, out, _ = run(capsys, *words, "--no-compile", "--top", "1")
    assert code == 0
    assert "The four rules of thumb" in out


@pytest.mark.parametrize("gpu", ["A100", "L4", "B200"])
def test_kernels_that_a_gpu_cannot_run_are_left_out_with_a_line(capsys, gpu):
    code, out, err = run(capsys, "advise", "4096", "--dtype", "bf16", "--gpu", gpu, "--no-compile", "--top", "1")
    assert code == 0
    assert out.startswith("cuda:gemm/14_wide, 4096x4096x4096 bf16")
    assert "gemm/25" not in out
    assert err.startswith("lowlevel: left out, since ")
    assert "cuda:gemm/25_fast: written for sm_90a" in err
    assert len(err.splitlines()) == 1


def test_what_can_be_advised_on_is_grouped_by_kernel(capsys):
    code, _, err = run(capsys, "advise", "4096", "--dtype", "tf32")
    assert code == 2
    assert "cuda:gemm/14_wide (bf16, fp16, fp16_acc16; NT, NN, TN, TT)" in err
    assert err.count("cuda:gemm/") == len(dict.fromkeys(k for k in catalog.kernels() if k.space))


def test_a_type_in_capitals_is_taken(capsys):
    words = ("advise", "1024", "--kernel", "gemm/08", "--no-compile")
    assert run(capsys, *words, "--dtype", "FP32") == run(capsys, *words, "--dtype", "fp32")


WRONG = {
    ("advise", "4096", "--dtype", "bf16", "--gpu", "T4"): "sm_75 is older; cuda:gemm/25_fast: written for sm_90a",
    ("advise", "4096", "--kernel", "gemm/25", "--gpu", "A100"): "cuda:gemm/25_fast: written for sm_90a",
    ("advise", "4096", "--dtype", "fp8", "--gpu", "L4"): "cuda:gemm/26_fp8: written for sm_90a",
    ("advise", "4096", "--gpu", "Voodoo"): "no GPU 'Voodoo' in the table",
    ("advise", "4096", "--dtype", "fp99"): "no dtype 'fp99'; there are: fp32",
    ("advise", "4096,2048", "--dtype", "fp32"): "advise takes one shape, not 2",
    ("advise", "64x64", "--dtype", "fp32"): "gemm takes shapes MxNxK or a single number",
    ("advise", "4096", "--dtype", "fp32", "--layout", "TT"): "no fp32 TT tile of a kernel with a tuning space",
    ("advise", "4096", "--dtype", "fp32", "--gpu", "T4"): "written for sm_80; sm_75 is older",
    ("advise", "4096", "--kernel", "gemm/01"): "cuda:gemm/01_naive has no tile of shared memory",
    ("advise", "4096", "--kernel", "ptx:gemm/02"): "there are: none in CUDA C++",
    ("advise", "4096", "--kernel", "gemm/99"): "no variant 'gemm/99'",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert WRONG[words] in err
    assert len(err.splitlines()) == 1

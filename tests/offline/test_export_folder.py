"""Exported folders: what launch.json says, and that both callers run, here against a driver without a GPU."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lowlevel import catalog, cli, hardware
from lowlevel.catalog.entry import Rule
from lowlevel.catalog.select import one_kernel
from lowlevel.dtypes import BF16, ELEMENTS, FP16, FP32, INT8
from lowlevel.errors import UsageError
from lowlevel.export import caller_c, caller_python, example, folder
from lowlevel.export.description import MAP_TYPES, describe
from lowlevel.problems.gemm import LAYOUTS, Gemm
from lowlevel.problems.make import make_problem
from lowlevel.problems.move import Transpose
from lowlevel.toolchain.build import build

STUB = Path(__file__).parent / "stub"
FILES = ["kernel.cubin", "kernel.ptx", "launch.json", "call.py", "call.c"]
#: Variant and shape; together they have every kind of parameter and launch.
EXPORTS = {
    "gemm/02_tiled": (100, 200, 30),
    "ptx:gemm/01_naive": (64, 64, 64),
    "cuda:transpose/01_naive[bf16]": (33, 70),
    "ptx:transpose/01_naive": (40, 50),
    "cuda:gemm/15_split_k_cooperative": (128, 128, 16384),
    "cuda:gemm/16_split_k": (128, 128, 16384),
    "cuda:gemm/20_tma_wgmma": (65, 127, 63),
    "cuda:gemm/25_fast[GPC=1]": (256, 512, 64),
    "cuda:gemm/26_fp8[GPC=0]": (65, 127, 63),
    "copy/01_vectorised": (64, 48),
    "probe/grid_barrier": (),
    "probe/cluster_shared": (),
    "probe/programmatic_pair": (),
    "probe/large_shared": (),
    "probe/tensor_map": (),
}


#: The kernels of cuda:gemm/20_tma_wgmma, as the stub's driver takes them.
COPIED = "repack 32 0 1024 8 8 4 4 4 4\ngemm 96 0 1024 128 128 8 4 4 4 4 24"


def exported(name: str, arch: str = "sm_90") -> tuple[dict, dict[str, bytes]]:
    variant = one_kernel(name)[0]
    binary = build(catalog.request(variant, arch))
    contents = folder.files(variant, make_problem(variant, EXPORTS[name]), binary, hardware.typical(arch))
    return json.loads(contents["launch.json"]), contents


def parameters(launch: dict) -> dict[str, dict]:
    return {p["name"]: p for p in launch["parameters"]}


@pytest.mark.parametrize(
    ("name", "cooperative", "grid", "nbytes"),
    [
        ("cuda:gemm/15_split_k_cooperative", True, [4 * 32, 1, 1], 128 + 4 * 32 * 64 * 64 * 4),
        ("cuda:gemm/16_split_k", False, [2, 2, 32], 4 * (4 * 128 + 32 * 64 * 64 * 4)),
    ],
)
def test_a_gemm_with_a_workspace_is_described(name, cooperative, grid, nbytes):
    call, _ = exported(name)
    (launch,) = call["launches"]
    workspace = parameters(launch)["workspace"]
    assert (launch["cooperative"], launch["grid"], launch["workspace_bytes"]) == (cooperative, grid, nbytes)
    assert (workspace["operand"], workspace["bytes"], workspace["zeroed_before_the_first_launch"]) == (
        None,
        nbytes,
        True,
    )


def test_a_gemm_is_described():
    call, contents = exported("gemm/02_tiled")
    (launch,) = call["launches"]
    assert list(contents) == FILES
    assert contents["kernel.cubin"][:4] == b"\x7fELF"
    assert f".visible .entry {launch['entry']}(" in contents["kernel.ptx"].decode()
    assert (launch["grid"], launch["block"]) == ([7, 4, 1], [32, 32, 1])
    assert (launch["dynamic_shared_bytes"], launch["static_shared_bytes"]) == (0, 8192)
    assert (launch["cluster"], launch["cooperative"], launch["programmatic"]) == (None, False, False)
    assert call["arch"] == "sm_90"
    found = parameters(launch)
    assert list(found) == ["A", "B", "C", "M", "N", "K", "lda", "ldb", "ldc"]
    assert {name: found[name]["value"] for name in list(found)[3:]} == {
        "M": 100, "N": 200, "K": 30, "lda": 30, "ldb": 200, "ldc": 200,
    }  # fmt: skip
    assert found["B"] == {
        "name": "B", "size": 8, "kind": "pointer", "operand": "B", "output": False, "element": "fp32",
        "shape": [30, 200], "leading_dimension": 200, "bytes": 24000,
    }  # fmt: skip
    assert found["M"] == {"name": "M", "size": 4, "kind": "int32", "value": 100}
    assert [o["output"] for o in call["operands"]] == [False, False, True]


def test_what_is_special_about_a_launch_is_said():
    of = lambda name: exported(name)[0]["launches"]  # noqa: E731
    assert of("probe/cluster_shared")[0]["cluster"] == [4, 1, 1]
    assert of("probe/large_shared")[0]["dynamic_shared_bytes"] == 65536
    first, second = of("probe/programmatic_pair")
    assert (first["entry"], first["programmatic"]) == ("primary", False)
    assert (second["entry"], second["programmatic"]) == ("secondary", True)
    (barrier,) = of("probe/grid_barrier")
    assert barrier["cooperative"]
    assert barrier["workspace_bytes"] == 4 * (1 + 132)
    workspace = parameters(barrier)["workspace"]
    assert (workspace["kind"], workspace["operand"], workspace["bytes"]) == ("pointer", None, 532)
    assert parameters(exported("copy/01_vectorised")[0]["launches"][0])["bytes"]["kind"] == "int64"
    found = parameters(of("probe/tensor_map")[0])["map_A"]
    assert (found["kind"], found["size"], found["operand"]) == ("tensor_map", 128, "A")
    assert (found["globalDim"], found["globalStrides"], found["boxDim"]) == ([136, 200], [544], [32, 64])


def test_copies_come_before_the_kernel_that_reads_them():
    """Rows of 63 elements, which TMA cannot take, become rows of 64 in the workspace."""
    call, _ = exported("cuda:gemm/20_tma_wgmma")
    copy_a, copy_b, gemm = call["launches"]
    assert [launch["entry"] for launch in call["launches"]] == ["repack", "repack", "gemm"]
    packed = parameters(copy_b)["packed_B"]
    assert (packed["operand"], packed["offset"], packed["bytes"]) == (None, 8448, 127 * 128)
    assert call["workspace_bytes"] == copy_b["workspace_bytes"] == 8448 + 127 * 128
    assert parameters(copy_a)["packed_A"]["offset"] == 0
    assert [parameters(copy_a)[name]["value"] for name in ("rows_A", "columns_A", "lda", "ld_packed_A")] == [
        65, 63, 63, 64,
    ]  # fmt: skip
    seen = parameters(gemm)["map_B"]
    assert (seen["operand"], seen["offset"], seen["globalDim"]) == (None, 8448, [63, 127])
    assert (seen["globalStrides"], seen["boxDim"], seen["swizzle"]) == ([128], [64, 128], "CU_TENSOR_MAP_SWIZZLE_128B")


def test_two_pointers_into_the_workspace_do_not_share_bytes():
    """The counters of gemm/25 are written while its table of GPCs is read."""
    call, _ = exported("cuda:gemm/25_fast[GPC=1]")
    (launch,) = call["launches"]
    counters, table = (parameters(launch)[name] for name in ("workspace", "gpc_of_sm"))
    assert (counters["offset"], counters["bytes"]) == (0, 16)
    assert (table["offset"], table["bytes"]) == (256, 132)
    assert call["workspace_bytes"] == 256 + 132


def test_a_pointer_that_a_configuration_does_not_read_is_null(called, language):
    name, copy = "cuda:gemm/26_fp8[GPC=0]", "repack 32 0 1024 8 8 4 4 4 4"
    call, _ = exported(name)
    table = parameters(call["launches"][-1])["gpc_of_sm"]
    assert (table["kind"], table["size"]) == ("zeros", 8)
    gemm = "gemm 168 0 1024 128 128 128 8 4 4 4 4 8 8 8 8 24"
    launch = [c for c in called(name, language, f"{copy}\n{gemm}")[1] if c["call"] == "launch"][-1]
    assert launch["parameters"][9] == "00" * 8


def test_rows_of_a_copy_longer_than_an_int_are_refused(capsys, tmp_path):
    assert cli.main(["export", "cuda:gemm/20", "2147483647", "-o", str(tmp_path / "out")]) == 2
    assert "rows of 2147483648 elements: more than an int holds" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_tma_takes_is_not_copied(monkeypatch):
    monkeypatch.setitem(EXPORTS, "cuda:gemm/20_tma_wgmma", (65, 127, 64))
    call, contents = exported("cuda:gemm/20_tma_wgmma")
    (gemm,) = call["launches"]
    assert (gemm["entry"], call["workspace_bytes"], parameters(gemm)["map_A"]["operand"]) == ("gemm", 0, "A")
    assert b"scratch" not in contents["call.c"] + contents["call.py"]


def test_a_map_that_cannot_be_is_zeros(called, language, monkeypatch):
    kernel = one_kernel("cuda:gemm/20_tma_wgmma")[0].kernel
    monkeypatch.setitem(kernel.boxes, "A", lambda config, problem, limits: None)
    _, calls = called("cuda:gemm/20_tma_wgmma", language, COPIED)
    launch = [c for c in calls if c["call"] == "launch"][-1]
    assert launch["parameters"][0] == "00" * 128
    assert launch["parameters"][1] != "00" * 128


def test_the_driver_has_the_names_that_a_map_is_described_by():
    driver = pytest.importorskip("cuda.bindings.driver")
    from lowlevel.device.cuda import tensormap

    assert set(MAP_TYPES) == set(ELEMENTS)
    for element, name in MAP_TYPES.items():
        number = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
        assert int(number) == tensormap._TYPES[element]


def test_the_grid_is_that_of_the_gpu_named(tmp_path):
    words = ["export", "probe/grid_barrier", "--gpu", "H100 PCIe", "-o", str(tmp_path)]
    assert cli.main(words) == 0
    call = json.loads((tmp_path / "launch.json").read_text())
    assert call["grid_made_for"] == {"gpu": "H100 PCIe", "sms": 114}
    assert call["launches"][0]["grid"] == [114, 1, 1]


@pytest.mark.parametrize("name", EXPORTS)
def test_callers_stand_alone(name):
    call, contents = exported(name)
    python, c = contents["call.py"].decode(), contents["call.c"].decode()
    assert "add\n// -L/usr/local/cuda/lib64/stubs:" in c  # where a linker finds libcuda.so without a driver
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(ast.parse(python))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"ctypes", "json", "pathlib", "numpy", "cuda"}
    for text in (python, c):
        assert "lowlevel" not in text
        assert not re.search(r"@[A-Z_]+@", text)
        assert not re.search(
            r"\b(BM|BN|BK|STAGES|ROWS|THREADS|ELEMENT_BYTES|TYPE_\w+|_TRANSPOSED)\b", text.replace(call["kernel"], "")
        )
    assert re.findall(r"#include <(\S+)>", c) == ["cuda.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"]
    for launch in call["launches"]:
        assert f'module, "{launch["entry"]}")' in c


def headers() -> list[Path]:
    """The stub's cuda.h, and the toolkit's where there is one."""
    from lowlevel.toolchain.headers import cuda_include_dirs

    places = [STUB, *cuda_include_dirs(), Path("/usr/local/cuda/include")]
    return [place for place in dict.fromkeys(places) if (place / "cuda.h").is_file()]


def compiler() -> str:
    if not (found := shutil.which("cc")):
        pytest.skip("no C compiler (cc)")
    return found


@pytest.mark.parametrize("name", EXPORTS)
def test_the_c_caller_compiles(name, tmp_path):
    source = tmp_path / "call.c"
    source.write_bytes(exported(name)[1]["call.c"])
    for place in headers():
        command = [compiler(), "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{place}", str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_formulas_agree_with_the_reference(layout):
    """The callers' formula against the float64 reference on the same inputs, also where the output rounds."""
    for problem in (Gemm(37, 29, 301, FP32, layout), Gemm(5, 7, 600, BF16, layout), Transpose(31, 9, FP32)):
        inputs = {o.name: example.values(n, o) for n, o in enumerate(problem.operands()[:-1])}
        (part,) = problem.expected(inputs, "integer")
        found = example.elements(problem)
        assert len(found) == 5
        for element in found:
            stored = float(part.value[element.row, element.column])
            assert abs(stored - element.value) <= element.tolerance
            if problem.type is not BF16:
                assert stored == element.value
    assert {tuple(np.unique(v.astype(np.float32))) for v in inputs.values()} == {(-1, 0, 1)}


def test_both_callers_make_the_inputs_that_are_described(tmp_path):
    """The same hash three times: of the exporter, in call.py and in call.c; launch.json names its constants."""
    places = [(o, r, c) for o in (0, 1, 2) for r in (0, 1, 77, 2**31 - 2) for c in (0, 5, 4095, 2**31 - 2)]
    expected = [example.digit(*place) for place in places]
    call, contents = exported("gemm/02_tiled")
    tree = ast.parse(contents["call.py"])
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "digit"]
    scope: dict = {}
    exec(compile(tree, "call.py", "exec"), scope)
    assert [scope["digit"](*place) for place in places] == expected
    columns = np.array([0, 5, 4095, 2**31 - 2], np.uint64)
    assert scope["digit"](1, 77, columns).tolist() == [example.digit(1, 77, int(c)) for c in columns]
    value = re.search(r"static int value\(.*?\n}\n", contents["call.c"].decode(), re.DOTALL)[0]
    calls = " ".join(f'printf("%d ", 1 + value({o}u, {r}u, {c}u));' for o, r, c in places)
    source = f"#include <stdint.h>\n#include <stdio.h>\n{value}int main(void) {{ {calls} return 0; }}\n"
    (tmp_path / "t.c").write_text(source)
    subprocess.run([compiler(), "t.c", "-o", "t"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True).stdout.split()
    assert list(map(int, said)) == expected
    constants = set(re.findall(r"0x[0-9A-F]{8}(?=u)", value))
    assert len(constants) == 4
    assert all(constant in call["example"]["inputs"] for constant in constants)


def test_a_long_sum_is_the_sum_of_its_terms():
    """Longer than a block of terms, and by a term that follows no other."""
    terms = example._BLOCK + 1
    compute = example.formula(Gemm(3, 3, terms, FP32, "NN"))
    expected = sum((example.digit(0, 2, k) - 1) * (example.digit(1, k, 1) - 1) for k in range(terms))
    assert compute(2, 1) == expected


def test_inputs_fit_the_narrowest_sums():
    """fp16 sums are exact up to 2048: random signs keep them far below at any K that anyone exports."""
    assert all(abs(e.value) < 1024 for e in example.elements(Gemm(64, 64, 16384, FP16)))


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("driver")
    command = [compiler(), "-shared", "-fPIC", "-O1", "-o", place / "libcuda.so.1", STUB / "libcuda.c"]
    subprocess.run(command, check=True)
    return place


@pytest.fixture
def called(library, tmp_path):
    """Runs one of the callers of an export with the stub as its driver: the process, and the driver's calls."""

    def run(name: str, language: str, kernel: str, spoil=lambda text: text):
        contents = exported(name)[1]
        for file, content in contents.items():
            (tmp_path / file).write_bytes(content)
        (tmp_path / f"call.{language}").write_text(spoil(contents[f"call.{language}"].decode()))
        (tmp_path / "kernel.cubin").write_text(kernel)
        log = tmp_path / "calls.jsonl"
        log.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "PYTHONPATH"))}
        environment |= {"LD_LIBRARY_PATH": str(library), "STUB_GPU": "H200", "STUB_RUN": "1", "STUB_LOG": str(log)}
        command = [sys.executable, "call.py"]
        if language == "c":
            link = [f"-I{STUB}", "-o", "call", f"-L{library}", "-l:libcuda.so.1"]
            subprocess.run([compiler(), "call.c", *link], cwd=tmp_path, check=True)
            command = ["./call"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        return done, [json.loads(line) for line in log.read_text().splitlines()]

    return run


@pytest.fixture(params=["py", "c"])
def language(request):
    if request.param == "py":
        pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    return request.param


def test_without_a_driver_the_python_caller_says_so_in_one_line(tmp_path):
    _, contents = exported("ptx:transpose/01_naive")
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "bindings.py").write_text(
        "class driver:\n    def cuInit(flags):\n        raise RuntimeError('Failed to dlopen libcuda.so.1')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "call.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "call.py: no CUDA driver: Failed to dlopen libcuda.so.1\n"


def test_callers_launch_and_check(called, language):
    """The stub transposes what it is given, so ok means: inputs in place, arguments in order, elements read back."""
    done, calls = called("ptx:transpose/01_naive", language, "transpose 32 0 1024 8 8 4 4 4 4")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    (launch,) = [c for c in calls if c["call"] == "launch"]
    assert (launch["grid"], launch["block"], launch["numAttrs"]) == ([2, 2, 1], [32, 8, 1], 0)
    assert launch["parameters"][2:] == ["28000000", "32000000", "32000000", "28000000"]


def test_callers_see_a_wrong_element(called, language):
    """One that the kernel did not write, and one that the host expects otherwise."""
    done, _ = called("gemm/02_tiled", language, "gemm 32 0 1024 8 8 8 4 4 4 4 4 4")
    assert done.returncode == 1
    assert re.search(r"call\.(py|c): C\[0\]\[0\] is -?nan, expected -?\d", done.stderr)
    swapped = {
        "py": ("(digit(0, column, row)", "(digit(0, row, column)"),
        "c": ("value(0, column,", "value(1, column,"),
    }
    spoil = lambda text: text.replace(*swapped[language])  # noqa: E731
    done, _ = called("ptx:transpose/01_naive", language, "transpose 32 0 1024 8 8 4 4 4 4", spoil)
    assert done.returncode == 1
    assert "expected" in done.stderr


def test_callers_pass_everything_special_on(called, language):
    ask = lambda name, kernel: called(name, language, kernel)[1]  # noqa: E731
    launch = lambda calls: next(c for c in calls if c["call"] == "launch")  # noqa: E731
    calls = ask("probe/cluster_shared", "cluster_shared 32 0 1024 8 8 4")
    assert launch(calls)["attributes"] == [[4, [4, 1, 1]]]
    calls = ask("probe/grid_barrier", "grid_barrier 32 0 1024 8 8 4 8")
    assert launch(calls)["attributes"] == [[2, 1]]
    assert launch(calls)["parameters"][3] != "0" * 16
    calls = ask("probe/large_shared", "large_shared 32 0 1024 8 8 4")
    assert launch(calls)["shared"] == 65536
    assert {"call": "set", "attribute": 8, "value": 65536} in calls
    calls = ask("probe/tensor_map", "tensor_map 32 0 1024 128 8 4 4 4")
    (encode,) = [c for c in calls if c["call"] == "encode"]
    assert encode["map"] % 64 == 0
    assert (encode["type"], encode["shape"], encode["stride"], encode["box"]) == (3, [136, 200], 544, [32, 64])
    assert (encode["steps"], encode["modes"]) == ([1, 1], [0, 0, 2, 0])
    assert "scratch" not in exported("probe/tensor_map")[1][f"call.{language}"].decode()
    # The stub writes the address first and counts on: the kernel got these 128 bytes by value.
    assert launch(calls)["parameters"][0][16:] == bytes(range(8, 128)).hex()


def test_callers_copy_into_memory_that_the_launches_share(called, language):
    _, calls = called("cuda:gemm/20_tma_wgmma", language, COPIED)
    copy_a, copy_b, gemm = [c for c in calls if c["call"] == "launch"]
    assert [launch["kernel"] for launch in (copy_a, copy_b, gemm)] == ["repack", "repack", "gemm"]
    scratch, behind = (int.from_bytes(bytes.fromhex(c["parameters"][1]), "little") for c in (copy_a, copy_b))
    assert behind == scratch + 8448
    assert [c["global"] for c in calls if c["call"] == "encode"] == [scratch, behind]


def test_the_c_caller_reads_every_output_type(tmp_path):
    """The generated `element` against numpy, for every type it knows, on every 16-bit pattern or a spread of others."""
    for name in caller_c._DECODE:
        dtype = ELEMENTS[name].numpy
        values = np.concatenate([np.arange(-100, 100), [0.5, 1.5, 1e-7, 65504, 3e4]]).astype(dtype)
        size = values.dtype.itemsize
        output = {"element": name, "leading_dimension": values.size}
        words = ", ".join(str(w) for w in values.view(f"u{size}"))
        source = (
            '#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n#include "cuda.h"\n'
            "#define CHECK(call) call\n"
            "CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n)\n"
            "{ memcpy(to, (void *)(uintptr_t)from, n); return 0; }\n"
            + "\n".join(caller_c._element(output))
            + f"\nstatic const uint{8 * size}_t words[] = {{{words}}};\n"
            f"int main(void) {{ for (int i = 0; i < {values.size}; i++)"
            ' printf("%.17g\\n", element((CUdeviceptr)(uintptr_t)words, 0, i)); return 0; }\n'
        )
        (tmp_path / "t.c").write_text(source)
        subprocess.run([compiler(), f"-I{STUB}", "t.c", "-o", "t"], cwd=tmp_path, check=True)
        said = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True).stdout.split()
        assert np.array_equal(np.array(said, float), values.astype(np.float64), equal_nan=True), name
        bits = values.view(f"u{size}")
        decoded = eval(caller_python._DECODE[name], {"bits": bits})
        assert np.array_equal(decoded.astype(np.float64), values.astype(np.float64), equal_nan=True), name


def test_a_result_that_the_callers_cannot_read_is_refused():
    call = {"launches": [], "workspace_bytes": 0, "operands": [{"output": True, "element": "fp8"}]}
    for writer in (caller_python, caller_c):
        with pytest.raises(UsageError, match="cannot read results of type fp8"):
            writer.write(call, Gemm(1, 1, 1, INT8), None)


def test_a_shape_that_the_kernel_does_not_take_is_refused_with_its_rule(monkeypatch, capsys, tmp_path):
    kernel = one_kernel("cuda:gemm/02_tiled")[0].kernel
    rule = Rule(lambda p: p.dimensions["k"] % 8 == 0, "K must be a multiple of 8")
    object.__setattr__(kernel, "needs", (rule,))
    try:
        code = cli.main(["export", "cuda:gemm/02_tiled", "64x64x7", "-o", str(tmp_path / "out")])
    finally:
        object.__setattr__(kernel, "needs", ())
    said = capsys.readouterr().err
    assert code == 2
    assert "does not take 64x64x7: K must be a multiple of 8" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


WRONG = {
    ("export", "gemm/02_tiled"): "export needs a shape: lowlevel export cuda:gemm/02_tiled 4096",
    ("export", "gemm/02_tiled", "64,128"): "one shape, not 2",
    ("export", "probe/tensor_map", "64"): "has a size of its own",
    ("export", "gemm", "64"): "names several kernels: gemm/01_naive, gemm/02_tiled",
    ("export", "gemm/99", "64"): "no variant 'gemm/99'",
    ("export", "probe/tensor_map", "--arch", "sm_80"): "written for sm_90; sm_80 is older",
    ("export", "gemm/02_tiled", "64", "--arch", "sm_90", "--gpu", "A100"): "code for sm_90 cannot run on A100",
    ("export", "gemm/02_tiled", "2097121x2147483647x1"): "grid y is 65536, the limit is 1 to 65535",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_is_one_line(words, capsys, tmp_path):
    assert cli.main([*words, "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert WRONG[words] in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_only_its_own_files_are_written_over(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "launch.json").write_text("old")
    assert cli.main(["export", "ptx:gemm/02", "64", "--arch", "sm_80", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {tmp_path / name}" for name in FILES]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    call = json.loads((tmp_path / "launch.json").read_text())
    assert (call["kernel"], call["arch"]) == ("ptx:gemm/02_tiled[fp32,NN,32x32x32]", "sm_80")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FILES, "notes.txt"])


def test_a_file_where_the_folder_should_be_is_one_line(capsys, tmp_path):
    (tmp_path / "out").write_text("")
    assert cli.main(["export", "gemm/02", "64", "-o", str(tmp_path / "out"), "--arch", "sm_80"]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_describing_refuses_code_for_another_gpu():
    variant = one_kernel("gemm/01_naive")[0]
    binary = build(catalog.request(variant, "sm_90"))
    with pytest.raises(UsageError, match="code for sm_90 cannot run on A100 SXM 80GB"):
        describe(variant, Gemm(1, 1, 1, FP32), binary, hardware.typical("sm_80"))

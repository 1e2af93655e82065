"""Stored choices: the order in which they are looked for, and files that are not right."""

import dataclasses
import json

import pytest

from lowlevel import hardware, tuned
from lowlevel.catalog.entry import Variant
from lowlevel.catalog.select import select
from lowlevel.dtypes import BF16, FP16, FP16_ACC16, FP32
from lowlevel.errors import UsageError
from lowlevel.problems.gemm import Gemm
from lowlevel.shape_class import shape_class

H200, H100, PCIE, A100 = (hardware.find(name) for name in ("H200", "H100 SXM", "H100 PCIe", "A100"))
(TILE,) = select(["gemm/08_warp_tile"])
CUBE = Gemm(4096, 4096, 4096, FP32)
SHIPPED = tuned.paths.tuned_root() / "h200.json"
RULE = dict(tuned.suited(TILE, CUBE, H200).config)


def config(**change):
    return {**TILE.kernel.configs[0], **change}


def choice(m, n, k, limits=H200, label=TILE.kernel.label, layout="NN", **change):
    problem = Gemm(m, n, k, FP32)
    class_ = shape_class(problem, limits)
    figure = tuned.Figure(config(**change), 3, "ok", "", 9.5, 0.1, 20, 1.05)
    return tuned.Choice(
        label, "fp32", layout, (m, n, k), class_, config(**change), config(), 9.5, 1.05, tried=(figure,)
    )


@pytest.fixture
def store(tuned_folders):
    own, shipped = tuned_folders

    def put(*choices, gpu=H200, mine=True):
        file = tuned.empty(gpu)
        for each in choices:
            file = file.with_choice(each)
        file.save((own if mine else shipped) / f"{tuned.paths.gpu_slug(gpu.name)}.json")

    return put


def stages(problem=CUBE, limits=H200):
    found = tuned.suited(TILE, problem, limits)
    return found.config["STAGES"], found.chosen_by


def test_without_a_choice_the_rule_and_without_a_rule_the_model():
    assert tuned.suited(TILE, CUBE, H200).chosen_by == "rule"
    kernel = dataclasses.replace(TILE.kernel, choose=None)
    variant = Variant(kernel, FP32, "NN", kernel.configs[0])
    found = tuned.suited(variant, CUBE, H200)
    assert found.chosen_by == "model"
    assert found.listed
    assert tuned.suited(variant, Gemm(512, 512, 4096, FP32), A100).config == kernel.configs[1]
    plain = dataclasses.replace(kernel, space={})
    variant = Variant(plain, FP32, "NN", plain.configs[0])
    assert tuned.suited(variant, CUBE, H200) is variant


def test_exact_shape_before_class_and_own_before_shipped(store):
    near = choice(4096, 4096, 3072, STAGES=2)
    store(near, mine=False)
    assert stages() == (2, "tuned (class)")
    store(choice(4096, 4096, 4096, STAGES=4), near, mine=False)
    assert stages() == (4, "tuned (exact)")
    store(choice(4096, 4096, 2048, BK=32))
    assert stages() == (4, "tuned (exact)")  # shipped, but of this very shape
    store(choice(4096, 4096, 4096, STAGES=2))
    assert stages() == (2, "tuned (exact)")


def test_of_one_class_the_nearest_shape_and_the_own_file(store):
    store(choice(4096, 4096, 1040, STAGES=2), choice(4096, 4096, 3584, STAGES=4), mine=False)
    assert stages() == (4, "tuned (class)")
    assert stages(Gemm(4096, 4096, 1088, FP32)) == (2, "tuned (class)")
    store(choice(4096, 4096, 1056, BK=32, STAGES=2))
    assert tuned.suited(TILE, CUBE, H200).config["BK"] == 32
    assert stages(Gemm(4096, 4096, 512, FP32))[1] == "rule"


def test_a_type_without_choices_takes_those_of_another_of_its_sizes(store):
    (wide,) = select(["cuda:gemm/14_wide[bf16,NT,64x64x64]"])
    cube = Gemm(4096, 4096, 4096, BF16, "NT")
    found = dataclasses.replace(choice(4096, 4096, 4096, label=wide.kernel.label, layout="NT"), type="bf16")
    store(dataclasses.replace(found, config=dict(wide.config), reference=dict(wide.config)))

    def said(type_, layout="NT"):
        return tuned.suited(Variant(wide.kernel, type_, layout, wide.kernel.configs[0]), cube, H200).chosen_by

    assert said(BF16) == "tuned (exact)"
    assert said(FP16) == "tuned (exact, bf16)"
    assert said(FP16_ACC16) in ("rule", "model")  # its sums are half as large
    assert said(FP16, "NN") in ("rule", "model")


@pytest.fixture
def fast_choice(store):
    """A kernel that counts clocks, and a stored choice for 2048 cubed, what was fastest there: 128 tiles of a pair, two
    waves."""
    fast = next(v for v in select(["cuda:gemm/25_fast"]) if (v.type, v.layout) == (BF16, "NT"))
    config = next(c for c in fast.kernel.configs if c["BM"] == c["BN"] == 128 and c["PINGPONG"])
    config = {**config, "CLUSTER_M": 1, "CLUSTER_N": 2, "GROUP": 16}
    class_ = shape_class(Gemm(2048, 2048, 2048, BF16, "NT"), H200)
    choice = tuned.Choice(fast.kernel.label, "bf16", "NT", (2048, 2048, 2048), class_, config, config)
    store(choice)
    return fast, choice


def test_a_classs_choice_counts_where_the_kernels_count_finds_nothing_clearly_faster(fast_choice, monkeypatch):
    fast, choice = fast_choice

    def found(m, n, k, limits=H200):
        found = tuned.suited(fast, Gemm(m, n, k, BF16, "NT"), limits)
        return found.config == choice.config, found.chosen_by

    assert found(2048, 2048, 1920) == (True, "tuned (class)")
    assert found(2344, 928, 1824) == (False, "rule")  # 76 tiles: two waves, where others need one
    assert found(2344, 928, 1824, H100) == (False, "rule")
    monkeypatch.setattr(tuned, "CLEARLY", 2.0)
    tuned.forget()
    assert found(2344, 928, 1824) == (True, "tuned (class)")


def test_an_exact_choice_counts_whatever_the_count_says(fast_choice, store):
    fast, choice = fast_choice
    shape = (2344, 928, 1824)
    store(dataclasses.replace(choice, shape=shape))
    assert tuned.suited(fast, Gemm(*shape, BF16, "NT"), H200).chosen_by == "tuned (exact)"


def test_of_a_class_the_nearest_that_is_not_clearly_slower(fast_choice, store):
    fast, choice = fast_choice
    near, far = (dataclasses.replace(choice, shape=shape) for shape in ((2304, 928, 1824), (2048, 2048, 3072)))
    store(near, dataclasses.replace(far, config=dict(far.config, BN=160, STAGES=4, CLUSTER_N=1)))
    found = tuned.suited(fast, Gemm(2344, 928, 1824, BF16, "NT"), H200)
    assert (found.config["BN"], found.chosen_by) == (160, "tuned (class)")


def test_another_gpu_of_the_architecture(store):
    large = Gemm(5120, 5120, 5120, FP32)
    store(choice(5120, 5120, 5120, STAGES=4), mine=False)
    assert stages(large, H100) == (4, "tuned (H200)")  # as many SMs: the same waves
    assert stages(large, PCIE) == (4, "tuned (H200)")  # 8 to 16 tiles an SM on either
    assert stages(CUBE, PCIE)[1] == "rule"
    assert stages(large, A100)[1] == "rule"
    store(choice(5120, 5120, 5120, PCIE, STAGES=2), gpu=PCIE, mine=False)
    assert stages(large, H100) == (4, "tuned (H200)")  # the nearest
    store(choice(5120, 5120, 5120, H100, BK=32), gpu=H100)
    assert stages(large, H100) == (3, "tuned (exact)")


def test_elsewhere_the_same_shape_is_not_the_same_waves(store):
    shape = (1536, 1408, 1408)  # 132 tiles of 128 x 128
    store(choice(*shape, STAGES=4))
    assert stages(Gemm(*shape, FP32)) == (4, "tuned (exact)")
    assert stages(Gemm(*shape, FP32), PCIE)[1] == "rule"
    assert stages(Gemm(*shape, FP32), H100) == (4, "tuned (H200)")


def test_a_choice_that_no_longer_fits_is_passed_over(store):
    others = [
        choice(4096, 4096, 4096, STAGES=1),
        choice(4096, 4096, 4096, label="cuda:gemm/07_async", STAGES=4),
        choice(4096, 4096, 4096, layout="NT", STAGES=4),
    ]
    store(*others)
    assert stages()[1] == "rule"
    odd = dataclasses.replace(choice(4096, 4096, 4096), config={"BM": 128})
    store(odd)
    assert stages()[1] == "rule"


def test_a_choice_of_before_a_number_has_it_at_its_optional_value(store):
    store(choice(4096, 4096, 4096, STAGES=4))
    later = dataclasses.replace(
        TILE.kernel, configs=tuple({"CUT": 1, **c} for c in TILE.kernel.configs), optional={"CUT": 1}
    )
    found = tuned.suited(Variant(later, FP32, "NN", later.configs[0]), CUBE, H200)
    assert found.chosen_by == "tuned (exact)"
    assert list(found.config.items()) == list({"CUT": 1, **config(STAGES=4)}.items())
    plain = dataclasses.replace(later, optional={})
    assert tuned.suited(Variant(plain, FP32, "NN", plain.configs[0]), CUBE, H200).chosen_by == "rule"


def test_a_named_configuration_stays(store):
    store(choice(4096, 4096, 4096, STAGES=4))
    named = dataclasses.replace(TILE, chosen_by="named")
    assert tuned.suited(named, CUBE, H200) is named


def test_what_is_saved_is_loaded(tmp_path):
    file = tuned.empty(H200).with_choice(choice(64, 64, 64)).with_choice(choice(32, 64, 64))
    path = tmp_path / "deep" / "h200.json"
    file.save(path)
    assert tuned.Tuned.load(path) == file
    assert len(path.read_text().splitlines()) == 4  # a choice a line
    again = file.with_choice(choice(32, 64, 64, STAGES=4))
    assert [c.config["STAGES"] for c in again.choices] == [4, 3]
    (tmp_path / "blocked").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        file.save(tmp_path / "blocked" / "x.json")


def test_no_winner_on_an_h200_is_clearly_behind_by_its_kernels_count():
    for choice in tuned.Tuned.load(SHIPPED).choices:
        kernel = select([choice.kernel])[0].kernel
        type_ = next(t for t in kernel.types if t.name == choice.type)
        problem = Gemm(*choice.shape, type_, choice.layout)
        config = kernel.completed(choice.config)
        assert not tuned._clearly_slower(kernel, config, problem, H200), choice.key


BROKEN = {
    "": "is not a file of tuned choices (Expecting value",
    "[]": "is not a file of tuned choices",
    '{"schema": 99}': "has schema 99, this version reads 1: tune again",
    '{"schema": 1, "gpu": "H200"}': "is not a file of tuned choices ('choices')",
    '{"schema": 1, "gpu": "H200", "sms": 1, "capability": [9, 0], "choices": [{"kernel": 1}]}': "'tried'",
    '{"schema": 1, "gpu": "H200", "sms": 1, "capability": 9, "choices": []}': "is not a file of tuned choices",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_corrupt_file_is_one_line_and_no_choice(tuned_folders, text, capsys):
    own, _ = tuned_folders
    own.mkdir()
    (own / "h200.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        tuned.Tuned.load(own / "h200.json")
    assert BROKEN[text] in str(caught.value)
    assert stages()[1] == "rule"
    assert tuned.suited(TILE, Gemm(64, 64, 64, FP32), H200).chosen_by == "rule"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("lowlevel: ")
    assert "h200.json" in said[0]


def test_a_configuration_of_words_is_corrupt(tmp_path):
    path = tmp_path / "h200.json"
    tuned.empty(H200).with_choice(choice(64, 64, 64)).save(path)
    data = json.loads(path.read_text())
    data["choices"][0]["config"]["BM"] = "large"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is not a file of tuned choices"):
        tuned.Tuned.load(path)

"""Files that are written whole or not at all."""

import pytest

from lowlevel import files


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        files.write_whole(tmp_path / "kernel", b"data")
    assert list(tmp_path.iterdir()) == []


def test_who_may_read_a_file_is_as_the_umask_has_it(tmp_path):
    (tmp_path / "plain").write_bytes(b"data")
    files.write_whole(tmp_path / "written", b"data")
    modes = [(tmp_path / name).stat().st_mode for name in ("plain", "written")]
    assert modes[0] == modes[1]

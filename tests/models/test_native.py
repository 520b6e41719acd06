"""How the C kernel is had: compiled once, kept where nobody else can write, done without where it cannot be had."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from fedlatest.models import lstm
from fedlatest.models.kernels import native
from tests.models.recurrence_backends import BACKENDS, needs_compiler, some_params, some_weights
from tests.models.test_lstm import texts

pytestmark = needs_compiler
FLAGS = native.FLAGS
SIZES = (2, 3)  # inputs, hidden units: of no other test, since XLA takes a kernel's name once


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and nothing remembered of kernels, before and after."""
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "FLAGS", (*FLAGS, "-O0"))  # compiles in a third of the time
    native._register.cache_clear()
    yield tmp_path / "cache" / "kernels"
    native._register.cache_clear()


def pretended_compiler(folder: Path, script: str) -> str:
    compiler = folder / "pretended"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    return str(compiler)


def name_of_the_kernel() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_library", lambda *_: None)
        return native._build(*SIZES)[0]


def works(library: object) -> bool:
    return all(hasattr(library, f"lstm_{what}") for what in ("forward", "backward"))


def test_switched_off(monkeypatch: pytest.MonkeyPatch, kernels: Path) -> None:
    monkeypatch.setenv("FEDLATEST_NATIVE", "0")
    assert not native.is_usable(*SIZES)
    assert not kernels.exists()


def test_without_a_compiler_one_warning_and_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernels: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    model, params, features = lstm(num_features=5, hidden=3), some_params(5, 3), texts()
    with pytest.warns(UserWarning, match="slower here.*no C compiler found; install gcc or clang"):
        found = jax.jit(model.apply)(params, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda params: model.apply(params, features))(params)
    assert not kernels.exists()
    native._register.cache_clear()
    monkeypatch.undo()
    np.testing.assert_allclose(found, model.apply(params, features), rtol=1e-5)


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", pretended_compiler(tmp_path, "echo 'no licence today' >&2; exit 3"))
    with pytest.warns(UserWarning, match=r"cannot be compiled \(pretended: no licence today\)"):
        assert not native.is_usable(*SIZES)


def test_a_compiler_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", pretended_compiler(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(native, "PATIENCE", 0.05)
    with pytest.warns(UserWarning, match="timed out after"):
        assert not native.is_usable(*SIZES)


def test_options_that_the_compiler_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Apple's compilers for ARM take no -march=native, others no -mcpu=native."""
    refuse = 'case "$*" in *-march=native*|*-mcpu=native*) echo unknown >&2; exit 1;; esac; exec cc "$@"'
    monkeypatch.setenv("CC", pretended_compiler(tmp_path, refuse))
    assert works(native._build(*SIZES)[1])


def test_the_environments_compiler_may_have_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -fno-tree-vectorize")
    assert native._compiler()[1:] == ["-fno-tree-vectorize"]


def test_compiled_once_and_kept_for_the_user_alone(kernels: Path) -> None:
    native._build(*SIZES)
    [library] = kernels.iterdir()  # no draft is left
    assert kernels.stat().st_mode & 0o777 == 0o700
    made = library.stat().st_mtime_ns
    native._build(*SIZES)
    assert [library] == list(kernels.iterdir())
    assert library.stat().st_mtime_ns == made


def test_what_a_kernel_is_made_of_is_in_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sizes, the compiler's options, the processor, the source."""
    source = tmp_path / "lstm.c"
    source.write_text(native.SOURCE.read_text() + "/* changed */\n")
    names = [name_of_the_kernel()]
    for target, name, value in [
        (sys.modules[__name__], "SIZES", (3, 2)),
        (native, "FLAGS", (*native.FLAGS, "-O1")),
        (native, "FOR_THIS_MACHINE", ((),)),
        (native, "SOURCE", source),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            names.append(name_of_the_kernel())
    assert len(set(names)) == 5
    assert name_of_the_kernel() == names[0]


def test_a_damaged_kernel_is_made_again(kernels: Path) -> None:
    kernels.mkdir(mode=0o700, parents=True)
    library = kernels / f"{name_of_the_kernel()}.so"
    library.write_bytes(b"\x7fELF and then nothing")
    assert works(native._build(*SIZES)[1])
    assert library.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_to_still_works(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder should be, which stops even root; nothing is left behind elsewhere."""
    kernels.parent.write_text("not a folder")
    temporary = kernels.parents[1] / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert works(native._build(*SIZES)[1])
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are different there")
def test_what_others_could_have_put_there_is_not_run(kernels: Path) -> None:
    """In a folder that others can write to lies something by the right name: it is neither loaded nor replaced."""
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    planted = kernels / f"{name_of_the_kernel()}.so"
    planted.write_text("planted")
    assert works(native._build(*SIZES)[1])
    assert planted.read_text() == "planted"


def test_processes_that_compile_at_once_do_no_harm(kernels: Path) -> None:
    """Two start together; each gets a kernel that works, one file is left."""
    script = f"from fedlatest.models.kernels import native; assert native.is_usable{SIZES}"
    command = [sys.executable, "-W", "error", "-c", script]
    processes = [subprocess.Popen(command, env=dict(os.environ)) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(kernels.iterdir())) == 1


def test_the_compiler_has_nothing_to_complain_about(tmp_path: Path) -> None:
    """With all warnings as errors, for layers that fill registers and for such that do not."""
    for hidden in (5, 16):
        sizes = ("-DINPUTS=25", f"-DHIDDEN={hidden}", f"-I{jax.ffi.include_dir()}")
        strict = ("-Wall", "-Wextra", "-Werror", "-march=native")
        native._compile((*native._compiler(), *FLAGS, *strict, *sizes, str(native.SOURCE)), tmp_path / "lstm.so")


def test_the_kernel_is_used_where_it_is_there() -> None:
    """No warning, and the name that XLA is given is that of the library."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.is_usable(*SIZES)
    weights = some_weights(*SIZES)
    vectors, lengths = texts(SIZES[0])
    program = jax.jit(native.last_hidden).lower(weights, vectors, lengths).as_text()
    assert f"{native._target(*SIZES)}_forward" in program
    np.testing.assert_allclose(
        native.last_hidden(weights, vectors, lengths), BACKENDS["plain"](weights, vectors, lengths), atol=1e-6
    )

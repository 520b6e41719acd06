"""Compiling kernels in C: once, into a folder that only the user can write to, with plain JAX as the fallback."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from fedlatest.kernels import lstm_native, native_library
from fedlatest.kernels.native_library import Kernel
from fedlatest.kernels.training_native import dense_kernel, lstm_kernel
from fedlatest.models import lstm
from tests.kernels.recurrence_backends import BACKENDS, needs_compiler, some_params, some_weights
from tests.models.test_lstm import texts

pytestmark = needs_compiler
FLAGS = native_library.FLAGS
SIZES = (2, 3)  # inputs, hidden units; used in no other test, because XLA accepts the name of a kernel only once
KERNEL = lstm_native.kernel(*SIZES)
SOURCES = [path.name for path in native_library.FOLDER.glob("*.[ch]")]


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache on disk and in memory, before and after each test."""
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_library, "FLAGS", (*FLAGS, "-O0"))  # three times faster to compile
    native_library._register.cache_clear()
    yield tmp_path / "cache" / "kernels"
    native_library._register.cache_clear()


def fake_compiler(folder: Path, script: str) -> str:
    compiler = folder / "fake-compiler"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    return str(compiler)


def kernel_name() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_library, "_load", lambda *_: None)
        return native_library._build(KERNEL)[0]


def has_handlers(library: object) -> bool:
    return all(hasattr(library, f"lstm_{handler}") for handler in ("forward", "backward"))


def test_the_kernel_can_be_disabled(monkeypatch: pytest.MonkeyPatch, kernels: Path) -> None:
    monkeypatch.setenv("FEDLATEST_NATIVE", "0")
    assert not lstm_native.is_usable(*SIZES)
    assert not kernels.exists()


def test_without_a_compiler_it_warns_once_and_uses_plain_jax(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernels: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    model, params, features = lstm(num_features=5, hidden=3), some_params(5, 3), texts()
    with pytest.warns(UserWarning, match="slower JAX code is used.*no C compiler found; install gcc or clang"):
        found = jax.jit(model.apply)(params, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda params: model.apply(params, features))(params)
    assert not kernels.exists()
    native_library._register.cache_clear()
    monkeypatch.undo()
    np.testing.assert_allclose(found, model.apply(params, features), rtol=1e-5)


def test_the_output_of_a_failing_compiler_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, "echo 'no licence today' >&2; exit 3"))
    with pytest.warns(UserWarning, match=r"is used \(fake-compiler: no licence today\)"):
        assert not lstm_native.is_usable(*SIZES)


def test_a_compiler_that_hangs_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(native_library, "COMPILE_TIMEOUT", 0.05)
    with pytest.warns(UserWarning, match="timed out after"):
        assert not lstm_native.is_usable(*SIZES)


def test_unsupported_machine_flags_are_omitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some compilers for ARM do not support -march=native, others do not support -mcpu=native."""
    script = 'case "$*" in *-march=native*|*-mcpu=native*) echo unknown >&2; exit 1;; esac; exec cc "$@"'
    monkeypatch.setenv("CC", fake_compiler(tmp_path, script))
    assert has_handlers(native_library._build(KERNEL)[1])


def test_cc_may_contain_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -fno-tree-vectorize")
    assert native_library._find_compiler()[1:] == ["-fno-tree-vectorize"]


def test_compiled_once_into_a_private_folder(kernels: Path) -> None:
    native_library._build(KERNEL)
    [library] = kernels.iterdir()  # no draft is left
    assert kernels.stat().st_mode & 0o777 == 0o700
    modified = library.stat().st_mtime_ns
    native_library._build(KERNEL)
    assert [library] == list(kernels.iterdir())
    assert library.stat().st_mtime_ns == modified


def test_the_name_depends_on_everything_that_affects_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The sizes, the compiler options, the processor, the source and the headers."""
    changed = {}
    for file in ("lstm.c", "lstm.h"):
        changed[file] = tmp_path / file
        shutil.copytree(native_library.FOLDER, changed[file], ignore=lambda _, names: set(names) - set(SOURCES))
        (changed[file] / file).write_text((native_library.FOLDER / file).read_text() + "/* changed */\n")
    names = [kernel_name()]
    for target, name, value in [
        (sys.modules[__name__], "KERNEL", lstm_native.kernel(3, 2)),
        (native_library, "FLAGS", (*native_library.FLAGS, "-O1")),
        (native_library, "MACHINE_FLAGS", ((),)),
        (native_library, "FOLDER", changed["lstm.c"]),
        (native_library, "FOLDER", changed["lstm.h"]),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            names.append(kernel_name())
    assert len(set(names)) == 6
    assert kernel_name() == names[0]


def test_a_damaged_library_is_compiled_again(kernels: Path) -> None:
    kernels.mkdir(mode=0o700, parents=True)
    library = kernels / f"{kernel_name()}.so"
    library.write_bytes(b"\x7fELF and then nothing")
    assert has_handlers(native_library._build(KERNEL)[1])
    assert library.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_is_not_an_error(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has the name of the folder, which also prevents root from writing; no temporary files are left."""
    kernels.parent.write_text("not a folder")
    temporary = kernels.parents[1] / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert has_handlers(native_library._build(KERNEL)[1])
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_library_that_others_could_have_written_is_not_loaded(kernels: Path) -> None:
    """A file with the right name in a folder that other users can write to is neither loaded nor replaced."""
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    planted = kernels / f"{kernel_name()}.so"
    planted.write_text("planted")
    assert has_handlers(native_library._build(KERNEL)[1])
    assert planted.read_text() == "planted"


def test_two_processes_may_compile_at_the_same_time(kernels: Path) -> None:
    """Both get a working kernel, and one file is left."""
    script = f"from fedlatest.kernels import lstm_native; assert lstm_native.is_usable{SIZES}"
    command = [sys.executable, "-W", "error", "-c", script]
    processes = [subprocess.Popen(command, env=dict(os.environ)) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(kernels.iterdir())) == 1


def test_the_sources_compile_without_warnings(tmp_path: Path) -> None:
    """All warnings are errors; for layer sizes that are and are not a multiple of the SIMD width."""
    dense, texts = {"num_inputs": 7, "num_outputs": 3}, {"num_inputs": 25, "num_words": 9, "id_bytes": 2}
    kernels = [
        Kernel("rows.c", ()),
        *(lstm_native.kernel(25, hidden) for hidden in (5, 16)),
        *(lstm_kernel(**texts, hidden=hidden, batch_size=2) for hidden in (5, 16)),
        *(dense_kernel(**dense, hidden=hidden, batch_size=7, is_bytes=hidden > 0) for hidden in (0, 5)),
    ]
    for kernel in kernels:
        sizes = (*(f"-D{name}={size}" for name, size in kernel.sizes), f"-I{jax.ffi.include_dir()}")
        strict = ("-Wall", "-Wextra", "-Werror", "-march=native", *sizes, str(native_library.FOLDER / kernel.source))
        native_library._compile((*native_library._find_compiler(), *FLAGS, *strict), tmp_path / "kernel.so")


def test_the_kernel_is_used_if_it_is_usable() -> None:
    """There is no warning, and the compiled program contains the name of the kernel."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lstm_native.is_usable(*SIZES)
    weights = some_weights(*SIZES)
    vectors, lengths = texts(SIZES[0])
    program = jax.jit(lstm_native.last_hidden).lower(weights, vectors, lengths).as_text()
    assert f"{native_library._name(KERNEL)}_forward" in program
    np.testing.assert_allclose(
        lstm_native.last_hidden(weights, vectors, lengths), BACKENDS["plain"](weights, vectors, lengths), atol=1e-6
    )

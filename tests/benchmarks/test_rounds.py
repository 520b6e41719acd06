"""The table of benchmarks: a case runs in a process of its own, in turns with its limit; refusals are rows as well."""

import pytest
from benchmarks import limits, rounds, workloads
from benchmarks.machine import describe_machine
from benchmarks.rounds import CASES, COLUMNS, Case, has_parts, measure


@pytest.mark.skipif(limits.compiler() is None, reason="there is no C compiler")
@pytest.mark.slow
def test_a_case_beside_its_limit() -> None:
    """Workload M with one thread: all cells are filled, and the fused program is not slower than a tenth of ours."""
    name = "M, CPU, 1 thread"
    cells = measure(name, CASES[name], 1)
    assert len(cells) == len(COLUMNS) - 1
    median, best, limit, ratio, cpu_ratio, roofline, share, first_block, memory = cells
    assert float(median) == float(best) > 0
    assert float(ratio) == pytest.approx(float(median) / float(limit), rel=0.02)
    assert float(cpu_ratio) > 0.1
    assert roofline.endswith(("ms (flops)", "ms (memory)"))
    assert share.endswith("%")
    assert float(first_block) > 0
    assert float(memory) > 0.1


def test_a_refused_case_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reports a refusal instead of its first block."""
    monkeypatch.setattr(rounds.Rounds, "receive", lambda _: {"refused": "31 GiB are needed"})
    assert measure("M, CPU, 1 thread", CASES["M, CPU, 1 thread"], 1) == ["refused: 31 GiB are needed"]


def test_names_of_cases_select_them() -> None:
    assert [name for name in CASES if has_parts(name, "M, GPU")] == [
        "M, GPU",
        "M, GPU, N=1,000,000",
        "M, GPU, 9 trials",
    ]
    assert [name for name in CASES if has_parts(name, "S, 1 thread")] == ["S, CPU, 1 thread"]
    assert len([name for name in CASES if has_parts(name, "")]) == len(CASES)


def test_generated_texts_have_the_lengths_of_the_limit() -> None:
    texts = workloads.texts(10, 4).features
    assert texts.lengths.tolist() == workloads.text_lengths(40).tolist()
    assert ((texts.ids != 0).sum(axis=1) == texts.lengths).all()


def test_the_large_model_has_ten_million_parameters() -> None:
    import jax

    [spec] = rounds.large_spec()
    shapes = jax.eval_shape(spec.model.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == pytest.approx(10e6, rel=0.01)


def test_the_convolutional_model() -> None:
    import jax

    model = workloads.convolutional()
    assert model.apply(model.init(jax.random.key(0)), jax.numpy.ones((3, 784))).shape == (3, 10)


def test_machine_line() -> None:
    line = describe_machine()
    assert "JAX" in line
    assert "UTC" in line


def test_every_cpu_case_has_both_thread_counts_or_one() -> None:
    """What is compared with one thread is also measured with all threads."""
    for name, case in CASES.items():
        assert isinstance(case, Case)
        if case.one_thread:
            assert name.replace("1 thread", "all threads") in CASES

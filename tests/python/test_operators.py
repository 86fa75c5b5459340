"""Every operator of ATen with a backward: computes what plain PyTorch computes, or is refused before it runs. Nothing is accepted and wrong."""
import pytest

import operators

# One of every kind: reductions and losses whose kernels give more, or otherwise, than the rules for shapes say; views, writes in place,
# random access, results without elements, several results, complex numbers, decompositions, recurrent layers, what depends on values.
SHORT = """nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.binary_cross_entropy nn.functional.soft_margin_loss
nn.functional.huber_loss nn.functional.cross_entropy nn.functional.conv2d nn.functional.conv_transpose1d
nn.functional.unfold nn.functional.embedding_bag nn.functional.layer_norm nn.functional.batch_norm nn.functional.max_unpool2d
nn.functional.scaled_dot_product_attention nn.functional.interpolate.bicubic nn.functional.grid_sample nn.functional.pad.reflect
fft.fft fft.irfft2 diagonal_scatter select_scatter slice_scatter index_put scatter_add gather broadcast_to chunk unbind squeeze expand
cumsum logsumexp var_mean linalg.solve linalg.svd linalg.cholesky linalg.householder_product maximum as_strided matmul einsum where topk
nn.functional.mish masked_select cov""".split()

# What is refused, and how; everything else must be equal. Most depend on values (E601, E605, E609), have a result without elements
# (E109), or numbers of half the width (E607).
REFUSED = {
    "_segment_reduce.lengths": {"E609"}, "_segment_reduce.offsets": {"E609"}, "chalf": {"E607"}, "combinations": {"E601"},
    "corrcoef": {"E601"}, "cov": {"E601"}, "index_put": {"E601"}, "linalg.lstsq": {"E601"}, "linalg.lstsq.grad_oriented": {"E601"},
    "masked_select": {"E601"}, "nanquantile": {"E601"}, "narrow": {"E601", "E109"}, "nn.functional.ctc_loss": {"E601"},
    "nn.functional.gaussian_nll_loss": {"E601"}, "quantile": {"E601"}, "repeat": {"E109"}, "repeat_interleave": {"E601", "E609"},
    "tensor_split": {"E605"}, "tile": {"E109"}, "to_sparse": {"E605"},
}


@pytest.fixture(scope="module")
def table():
    return {operators.title(entry): entry for entry in operators.database()}


def check(entry, most):
    expected = REFUSED.get(operators.title(entry), set())
    for sample in operators.samples(entry, most):
        outcome = operators.outcome(entry, sample)
        assert outcome == "equal" or outcome.startswith("unusable") or outcome in expected, (operators.title(entry), outcome, sample)


@pytest.mark.parametrize("name", SHORT)
def test_operator(table, name):
    check(table[name], most=1)


@pytest.mark.long
def test_all_operators(table):
    for entry in table.values():
        check(entry, most=4)

"""The formula of a site: project, read, mix, write, and their gradients by hand."""

from .fault import Fault

FORMULAS = (
    Fault(
        "H transposed in the specification",
        "hyperconn/functional.py",
        '"...ij,...jc->...ic", res.to(wide)',
        '"...ji,...jc->...ic", res.to(wide)',
        ("tests/test_connection.py::test_the_specification_is_its_formulas",),
    ),
    Fault(
        "H transposed in the fast forward",
        "hyperconn/fast/mix.py",
        ".baddbmm_(by_token(res, 2, wide), X)",
        ".baddbmm_(by_token(res, 2, wide).mT, X)",
        ("tests/test_connection.py::test_the_mix_carries_source_j_into_destination_i",),
    ),
    Fault(
        "H transposed in the compiled form",
        "hyperconn/fast/compiled.py",
        "(res.to(wide).unsqueeze(-1)",
        "(res.to(wide).mT.unsqueeze(-1)",
        ("tests/test_connection.py::test_a_compiled_site_computes_the_same",),
    ),
    Fault(
        "H not transposed in the gradient of the streams",
        "hyperconn/fast/mix.py",
        "dX = product(by_token(res, 2, wide).mT, G,",
        "dX = product(by_token(res, 2, wide), G,",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "gradient of H transposed",
        "hyperconn/fast/mix.py",
        "dH = product(G, by_token(streams, 2, wide).mT, res.shape)",
        "dH = product(by_token(streams, 2, wide), G.mT, res.shape)",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "sums rounded to half precision in the merge",
        "hyperconn/fast/mix.py",
        "wide = compute_dtype(streams)\n        with outside_autocast(streams):\n            P =",
        "wide = streams.dtype\n        with outside_autocast(streams):\n            P =",
        ("tests/test_precision.py::test_reading_and_writing_round_once",),
    ),
    Fault(
        "streams returned unmixed",
        "hyperconn/connection.py",
        "return _merge(fast.write, streams, post, res, branch_output)",
        "return streams",
        ("tests/test_connection.py::test_forward_is_the_documented_formula",),
    ),
    Fault(
        "mix with the identity instead of H",
        "hyperconn/connection.py",
        "    return merge(streams, post, res, y)",
        "    return merge(streams, post, torch.eye(streams.shape[-2]).to(res).expand_as(res), y)",
        ("tests/test_connection.py::test_forward_is_the_documented_formula",),
    ),
    Fault(
        "branch reads the mean of the streams",
        "hyperconn/fast/read.py",
        "rows = by_token(pre, 1, wide).unsqueeze(1)\n            u",
        "rows = torch.full_like(by_token(pre, 1, wide), 1 / pre.shape[-1]).unsqueeze(1)\n            u",
        ("tests/test_connection.py::test_forward_is_the_documented_formula",),
    ),
    Fault(
        "sum of squares for their mean in the projection",
        "hyperconn/fast/project.py",
        "(norm.square() / V.shape[-1] + epsilon)",
        "(norm.square() + epsilon)",
        ("tests/test_mappings.py::test_flat_is_its_formula",),
    ),
    Fault(
        "gradient of the bias halved",
        "hyperconn/fast/project.py",
        "db = dm.sum(0).to",
        "db = (dm.sum(0) / 2).to",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "gradient through the normalisation left out",
        "hyperconn/fast/project.py",
        "_add_terms(dX.view(V.shape), V, pull, draw",
        "_add_terms(dX.view(V.shape), V, 0 * pull, draw",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "last tokens left out where a product is added in chunks",
        "hyperconn/fast/matmul.py",
        "zip(total.split(CHUNK), left.split(CHUNK), strict=True)",
        "zip(total.split(CHUNK)[:-1], left.split(CHUNK)[:-1], strict=True)",
        ("tests/test_fast.py::test_products_of_the_size_of_a_model",),
    ),
    Fault(
        "gradients written into somebody else's memory",
        "hyperconn/fast/ownership.py",
        "return gradient.clone(memory_format=torch.contiguous_format)",
        "return gradient.contiguous()",
        ("tests/test_connection.py::test_a_gradient_that_somebody_else_holds_is_not_written_to",),
    ),
    Fault(
        "sigmoid before scale and bias in the mapping",
        "hyperconn/mappings.py",
        "return fast.project(streams, self.weight, self._scales(), self.bias, self.epsilon)",
        "one, zero = torch.ones_like(self.bias), torch.zeros_like(self.bias)\n"
        "        raw, streams = fast.project(streams, self.weight, one, zero, self.epsilon)\n"
        "        return self._scales() * raw.sigmoid() + self.bias, streams",
        ("tests/test_mappings.py::test_flat_is_its_formula",),
    ),
    Fault(
        "sigmoid before scale and bias at the collapse",
        "hyperconn/streams.py",
        "self.weight, scale, self.bias, self.norm_epsilon)\n            return logits.sigmoid() + self.epsilon",
        "self.weight, torch.ones_like(scale), torch.zeros_like(scale), self.norm_epsilon)\n"
        "            return scale * logits.sigmoid() + self.bias + self.epsilon",
        ("tests/test_streams.py::test_a_learned_collapse_is_its_formula",),
    ),
    Fault(
        "dynamic part of the mapping dropped",
        "hyperconn/mappings.py",
        "fast.project(streams, self.weight, self._scales()",
        "fast.project(streams, torch.zeros_like(self.weight), self._scales()",
        ("tests/test_mappings.py::test_flat_is_its_formula",),
    ),
    Fault(
        "streams and logits swapped in the per-stream mapping",
        "hyperconn/mappings.py",
        "by_stream.tanh().mT.flatten(-2)",
        "by_stream.tanh().flatten(-2)",
        ("tests/test_mappings.py::test_per_stream_is_its_formula",),
    ),
    Fault(
        "post weight without its factor of two",
        "hyperconn/gates.py",
        "self.magnitude * logits.sigmoid()",
        "logits.sigmoid()",
        ("tests/test_mappings.py::test_flat_is_its_formula",),
    ),
)

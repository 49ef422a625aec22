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
        ".baddbmm_(H, X)",
        ".baddbmm_(H.mT, X)",
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
        "H[some].to(wide).mT, G)",
        "H[some].to(wide), G)",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "gradient of H transposed",
        "hyperconn/fast/mix.py",
        "G, X[some].to(wide).mT)",
        "X[some].to(wide), G.mT)",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "sums rounded to half precision in the merge",
        "hyperconn/fast/mix.py",
        "fresh(streams, dtype), compute_dtype(streams)",
        "fresh(streams, dtype), streams.dtype",
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
        "rows = p[some].to(wide).unsqueeze(1)\n",
        "rows = torch.full_like(p[some].to(wide), 1 / pre.shape[-1]).unsqueeze(1)\n",
        ("tests/test_connection.py::test_forward_is_the_documented_formula",),
    ),
    Fault(
        "sum of squares for their mean in the projection",
        "hyperconn/fast/project.py",
        "(norm.square() / W.shape[-1] + epsilon)",
        "(norm.square() + epsilon)",
        ("tests/test_mappings.py::test_flat_is_its_formula",),
    ),
    Fault(
        "gradient of the bias halved",
        "hyperconn/fast/project.py",
        "dm.sum(0).to(bias",
        "(dm.sum(0) / 2).to(bias",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "gradient through the normalisation left out",
        "hyperconn/fast/project.py",
        "V, pull[some], draw[some], W)",
        "V, 0 * pull[some], draw[some], W)",
        ("tests/test_connection.py::test_gradcheck_through_the_whole_site",),
    ),
    Fault(
        "last chunk of tokens left out",
        "hyperconn/fast/chunks.py",
        "for start in range(0, max(1, tokens), size):",
        "for start in range(0, max(1, tokens - size), size):",
        ("tests/test_fast.py::test_any_chunk_gives_the_same",),
    ),
    Fault(
        "gradient of the weight from the last chunk alone",
        "hyperconn/fast/project.py",
        "add_product(dW, draw[some].mT, V)",
        "add_product(dW.zero_(), draw[some].mT, V)",
        ("tests/test_fast.py::test_any_chunk_gives_the_same",),
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

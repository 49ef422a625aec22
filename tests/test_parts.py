"""Parts around a connection: each is what it says, starts as the plain residual, and composes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from conftest import branch, relative_error, supported
from torch import nn

import hyperconn as hc
from hyperconn import functional

ROUNDING = 2e-5  # relative, of a dozen float32 layers


def randomized(module: nn.Module) -> nn.Module:
    """The same module far from its start."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if getattr(parameter, "is_connection", False):
                parameter.add_(0.5 * torch.randn_like(parameter)) if "scale" not in name else parameter.fill_(0.7)
    return module


def plain(blocks, x):
    for block in blocks:
        x = x + block(x)
    return x


def all_get_gradients(module: nn.Module) -> bool:
    return all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


# --- several reads --------------------------------------------------------------------------------


class Recorder(nn.Module):
    """A branch of several inputs that keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.inputs = ()

    def forward(self, *inputs, **named):
        self.inputs, self.named = inputs, named
        return sum(inputs)


def test_a_read_is_its_formula():
    read = randomized(hc.Read(5, 3, layer_index=1)).double()
    streams = torch.randn(4, 3, 5, dtype=torch.float64)
    w, v = read.weights, streams.flatten(1)
    logits = w.scale * (v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt()) @ w.weight.T + w.bias
    expected = ((logits.sigmoid() + 1e-6).unsqueeze(-1) * streams).sum(1)
    torch.testing.assert_close(read(streams), expected)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_every_further_read_equals_a_separate_single_read(n):
    recorder = Recorder()
    site = randomized(hc.ExtraReads(hc.HyperConnection(8, n, recorder, layer_index=1), 2, layer_index=1))
    streams = torch.randn(2, 5, n, 8)
    output = site(streams)
    own, _ = site.connection.read(streams)
    for got, expected in zip(recorder.inputs, [own, *(read(streams) for read in site.reads)], strict=True):
        assert torch.equal(got, expected)
    single = hc.Read(8, n)
    single.load_state_dict(site.reads[1].state_dict())
    assert torch.equal(recorder.inputs[2], single(streams))
    branch_output = sum(recorder.inputs)
    assert torch.equal(output, site.connection.write(branch_output, site.connection.read(streams)[1]))


def test_separate_inputs_for_query_key_and_value():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    site = hc.ExtraReads(hc.HyperConnection(8, 4, attention, constraint="shc"), 2)
    x = torch.randn(2, 5, 8)
    streams, weights = site(hc.Expand(4)(x), need_weights=True)
    expected, expected_weights = attention(x, x, x)
    assert relative_error(streams.mean(-2), x + expected) <= ROUNDING
    torch.testing.assert_close(weights, expected_weights)
    randomized(site)(torch.randn(2, 5, 4, 8))[0].sum().backward()
    assert all_get_gradients(site)


# --- fractions ------------------------------------------------------------------------------------


def fractional(n, m, constraint="hc", mapping="per-stream", dim=12, **options):
    return hc.FractionalConnection(dim, n, m, branch(dim), constraint=constraint, mapping=mapping, **options)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 2), (1, 4), (2, 2), (4, 1), (2, 3)])
@pytest.mark.parametrize("mapping", ["per-stream", "flat", "static"])
@pytest.mark.parametrize("constraint", ["hc", "ihc", "jpmhc", "shc"])
def test_fractions_start_as_the_plain_residual(n, m, mapping, constraint):
    sites = [fractional(n, m, constraint, mapping, layer_index=i) for i in range(6)]
    x = torch.randn(2, 5, 12)
    streams = hc.Expand(n)(x)
    for site in sites:
        streams = site(streams)
    expected = plain([site.branch for site in sites], x)
    # Fractions of one stream are no copies: the start of shc, near I but not I, mixes them a little.
    assert relative_error(streams.mean(-2), expected) <= (0.1 if constraint == "shc" and m > 1 else ROUNDING)


@pytest.mark.parametrize(("n", "m"), [(1, 4), (2, 2), (2, 3), (4, 2)])
def test_fractions_are_their_formula_and_every_matrix_is_in_its_set(n, m):
    for name in ("shc", "transport", "unconstrained"):
        site = randomized(fractional(n, m, name)).double()
        streams = torch.randn(3, n, 12, dtype=torch.float64)
        pre, post, res = site.mappings(streams)
        assert res.shape == (3, n * m, n * m)
        assert site.constraint.violation(res).max() <= 1e-6
        width = 12 // m
        expected = torch.empty_like(streams)
        for t in range(3):
            z = [streams[t, s, f * width : (f + 1) * width] for s in range(n) for f in range(m)]
            u = torch.cat([sum(pre[t, f, j] * z[j] for j in range(n * m)) for f in range(m)])
            y = site.branch(u).split(width)
            for i in range(n * m):
                mixed = sum(res[t, i, j] * z[j] for j in range(n * m)) + sum(post[t, f, i] * y[f] for f in range(m))
                expected[t, i // m, (i % m) * width : (i % m + 1) * width] = mixed
        torch.testing.assert_close(site(streams), expected)


def test_one_fraction_is_a_connection_with_linear_gates():
    site = randomized(fractional(4, 1))
    whole = hc.HyperConnection(12, 4, site.branch, constraint="hc")
    with torch.no_grad():
        whole.mapping.weight.copy_(site.mapping.inner.weight)
        whole.mapping.bias.copy_(site.mapping.inner.bias)
        whole.mapping.scale.copy_(site.mapping.inner.scale[[0, 1, -1]])
    streams = torch.randn(2, 4, 12)
    torch.testing.assert_close(site(streams), whole(streams))


def test_fractions_train_inspect_and_save():
    site = fractional(2, 2, "shc")
    streams = torch.randn(3, 2, 12)
    site(streams).square().mean().backward()
    assert all_get_gradients(site)
    assert hc.inspect(site)[""].matrix.shape == (4, 4)
    twin = fractional(2, 2, "shc")
    twin.load_state_dict(site.state_dict())
    assert torch.equal(twin(streams), site(streams))
    with pytest.raises(ValueError, match="fractions 2"):
        hc.FractionalConnection(6, 4, 1, branch(6), constraint="shc").load_state_dict(site.state_dict())


# --- channel-first maps ---------------------------------------------------------------------------


def convolution(width, out=None, stride=1):
    return nn.Sequential(nn.BatchNorm2d(width), nn.Conv2d(width, out or width, 3, stride, padding=1), nn.GELU())


class LastConvolution(nn.Module):
    """The same convolution written for channels last, by hand."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


@pytest.mark.parametrize("constraint", ["mhc", "shc", "hc"])
def test_a_channel_first_network_equals_the_channel_last_one(constraint):
    blocks = [convolution(6) for _ in range(3)]
    first = hc.ChannelLast(hc.HyperStack([hc.ChannelFirst(b) for b in blocks], 6, constraint=constraint))
    randomized(first)
    last = hc.HyperStack([LastConvolution(b) for b in copy.deepcopy(blocks)], 6, constraint=constraint)
    parameters = {name: p for name, p in first.module.named_parameters() if "mapping" in name or "constraint" in name}
    last.load_state_dict(parameters, strict=False)
    x = torch.randn(2, 6, 6, 6)  # as wide as it is high and deep: a mixed up axis would not raise
    assert (first(x) - last(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)).abs().max() <= 1e-6


def test_batch_norm_at_one_stream_sees_what_a_plain_residual_block_sees():
    block = convolution(6)
    twin = copy.deepcopy(block)
    network = hc.ChannelLast(hc.HyperStack([hc.ChannelFirst(block)], 6, 1))
    x = torch.randn(2, 6, 5, 7)
    torch.testing.assert_close(network(x), x + twin(x))
    torch.testing.assert_close(block[0].running_var, twin[0].running_var)


def test_channel_wrappers_keep_arguments_and_structure():
    class Pair(nn.Module):
        def forward(self, x, shift, *, factor):
            return factor * x + shift, "kept"

    output, kept = hc.ChannelFirst(Pair())(torch.ones(2, 3, 4, 5), 1.0, factor=2.0)
    assert kept == "kept"
    assert torch.equal(output, torch.full((2, 3, 4, 5), 3.0))
    assert hc.ChannelLast(nn.Linear(5, 7))(torch.ones(2, 5, 3, 4)).shape == (2, 7, 3, 4)


# --- other widths and sizes -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 4)))
def test_a_stride_two_block_starts_as_a_plain_downsampling_block(name, n):
    block, shortcut = convolution(6, 10, 2), nn.Conv2d(6, 10, 1, 2)
    site = hc.ResizingConnection(
        6, 10, n, hc.ChannelFirst(block), transform=hc.ChannelFirst(shortcut), constraint=name, layer_index=1
    )
    x = torch.randn(2, 6, 8, 8)
    streams = site(hc.Expand(n)(x.movedim(1, -1)))
    assert streams.shape == (2, 4, 4, n, 10)
    expected = (shortcut(x) + block(x)).movedim(1, -1)
    assert relative_error(streams, expected.unsqueeze(-2).expand_as(streams)) <= ROUNDING


def test_a_resizing_connection_is_its_formula():
    block, shortcut = nn.Linear(6, 10), nn.Linear(6, 10)
    site = randomized(hc.ResizingConnection(6, 10, 3, block, transform=shortcut, constraint="shc")).double()
    streams = torch.randn(5, 3, 6, dtype=torch.float64)
    resized = torch.stack([shortcut(stream) for stream in streams.unbind(-2)], -2)
    maps = site.mappings(resized)
    y = block(site.reader(streams))
    torch.testing.assert_close(site(streams), maps.res @ resized + maps.post.unsqueeze(-1) * y.unsqueeze(-2))
    site(streams).sum().backward()
    assert all_get_gradients(site)


def test_a_resized_sphere_is_a_sphere():
    site = hc.ResizingConnection(6, 10, 4, nn.Linear(6, 10), transform=nn.Linear(6, 10), retraction="projection")
    streams = site(hc.Expand(4, retraction="projection")(torch.randn(5, 6)))
    torch.testing.assert_close(streams.norm(dim=-1), torch.full((5, 4), 10**0.5), rtol=1e-5, atol=0)


def test_each_stream_is_a_loop_over_streams():
    module = hc.ChannelFirst(nn.Conv2d(6, 4, 3, 2))
    streams = torch.randn(2, 9, 7, 3, 6)
    expected = torch.stack([module(stream) for stream in streams.unbind(-2)], -2)
    torch.testing.assert_close(hc.EachStream(module)(streams), expected)
    assert hc.EachStream(nn.Linear(6, 4))(torch.randn(3, 6)).shape == (3, 4)


def test_a_small_residual_network_for_images_trains():
    network = nn.Sequential(
        hc.ChannelFirst(nn.Conv2d(3, 6, 3, padding=1)),
        hc.Expand(4),
        hc.HyperConnection(6, 4, hc.ChannelFirst(convolution(6)), constraint="shc"),
        hc.ResizingConnection(
            6, 10, 4, hc.ChannelFirst(convolution(6, 10, 2)), transform=hc.ChannelFirst(nn.Conv2d(6, 10, 1, 2)), layer_index=1
        ),
        hc.HyperConnection(10, 4, hc.ChannelFirst(convolution(10)), constraint="shc", layer_index=2),
        hc.Collapse(),
    )  # fmt: skip
    images, target = torch.randn(4, 8, 8, 3), torch.randn(4, 4, 4, 10)
    optimizer = torch.optim.AdamW(hc.parameter_groups(network, 0.1), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = (network(images) - target).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]
    assert all_get_gradients(network)


# --- embedding, collapse, heads, dropout ----------------------------------------------------------


def test_a_stream_embedding_tells_the_streams_apart_and_starts_at_zero():
    blocks, x = [branch(8) for _ in range(3)], torch.randn(5, 8)
    expand = nn.Sequential(hc.Expand(4), hc.StreamEmbedding(4, 8))
    stack = hc.HyperStack(blocks, 8, 4, constraint="shc", expand=expand)
    assert relative_error(stack(x), plain(blocks, x)) <= ROUNDING
    embedding = expand[1].embedding
    with torch.no_grad():
        embedding.normal_()
    torch.testing.assert_close(stack.expand(x), x.unsqueeze(-2) + embedding)
    assert embedding.no_weight_decay
    stack(x).sum().backward()
    assert embedding.grad.abs().min() > 0
    assert expand.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    assert embedding.dtype == torch.float32


def test_an_embedding_on_a_sphere_stays_there():
    expand = nn.Sequential(hc.Expand(4), randomized(hc.StreamEmbedding(4, 8, retraction="projection")))
    torch.testing.assert_close(expand(torch.randn(5, 8)).norm(dim=-1), torch.full((5, 4), 8**0.5))
    assert len(list(expand.parameters())) == 1


def test_several_heads_collapse_the_same_streams():
    stack = randomized(hc.HyperStack([branch(8) for _ in range(3)], 8))
    heads = [randomized(hc.Collapse("learned", dim=8, streams=4)) for _ in range(2)]
    x = torch.randn(5, 8)
    streams = stack.before_collapse(x)
    assert streams.shape == (5, 4, 8)
    assert torch.equal(stack.collapse(streams), stack(x))
    one, two = (head(streams) for head in heads)
    assert not torch.allclose(one, two)


def test_dropout_acts_on_what_the_branch_writes_only():
    dropped = hc.HyperConnection(8, 4, hc.Then(branch(8), nn.Dropout(1.0)), constraint="identity")
    streams = torch.randn(5, 4, 8)
    assert torch.equal(dropped(streams), streams)
    assert not torch.equal(dropped.eval()(streams), streams)
    torch.manual_seed(1)
    site = hc.HyperConnection(8, 4, hc.Then(nn.Identity(), nn.Dropout(0.5)), constraint="identity", mapping="static")
    written = site(streams) - streams
    torch.testing.assert_close(written[:, 0], written[:, 3])  # one mask for all streams: it is the branch output's
    assert 0 < (written[:, 0] == 0).float().mean() < 1


def test_then_keeps_arguments_and_structure():
    class Pair(nn.Module):
        def forward(self, x, shift, *, factor):
            return factor * x + shift, "kept"

    output, kept = hc.Then(Pair(), nn.Dropout(1.0))(torch.ones(2, 8), 1.0, factor=2.0)
    assert kept == "kept"
    assert not output.any()


# --- the switch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
@pytest.mark.parametrize("collapse", ["mean", "sum", "learned"])
def test_a_disabled_network_is_its_plain_residual_twin_and_comes_back(name, n, collapse):
    blocks, x = [branch(8) for _ in range(4)], torch.randn(2, 5, 8)
    stack = randomized(hc.HyperStack(blocks, 8, n, constraint=name, collapse=collapse))
    trained, state = stack(x), copy.deepcopy(stack.state_dict())
    hc.disable(stack)
    assert torch.equal(stack(x), plain(blocks, x))
    assert stack.before_collapse(x).shape == (2, 5, 1, 8)
    hc.enable(stack)
    assert torch.equal(stack(x), trained)
    for key, value in stack.state_dict().items():
        assert torch.equal(value, state[key]), key


def test_every_part_can_be_disabled():
    network = nn.Sequential(
        hc.Expand(4),
        hc.StreamEmbedding(4, 8),
        hc.FractionalConnection(8, 4, 2, nn.Linear(8, 8)),
        hc.ExtraReads(hc.HyperConnection(8, 4, Recorder()), 1),
        hc.ResizingConnection(8, 6, 4, nn.Linear(8, 6), transform=nn.Linear(8, 6, bias=False)),
        hc.Collapse(),
    )
    hc.disable(randomized(network))
    x = torch.randn(3, 8)
    y = x + network[2].branch(x)
    y = y + (y + y)
    torch.testing.assert_close(network(x), network[4].transform.module(y) + network[4].branch(y))


def test_a_disabled_network_keeps_its_retraction():
    blocks = [branch(8) for _ in range(3)]
    stack = hc.HyperStack(blocks, 8, 4, retraction="projection")
    single = hc.HyperStack(blocks, 8, 1, retraction="projection")
    hc.disable(stack)
    x = torch.randn(5, 8)
    torch.testing.assert_close(stack(x), single(x))


def test_there_must_be_something_to_switch():
    with pytest.raises(ValueError, match="disable: Linear contains no hyper-connection"):
        hc.disable(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="enable: Linear contains no hyper-connection"):
        hc.enable(nn.Linear(2, 2))


# --- single-pass reading --------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
def test_single_pass_starts_as_the_plain_residual(name, n):
    blocks, x = [branch(8) for _ in range(5)], torch.randn(2, 5, 8)
    stack = hc.SinglePassStack(blocks, 8, n, constraint=name)
    assert relative_error(stack(x), plain(blocks, x)) <= (0 if n == 1 else ROUNDING)


@pytest.mark.parametrize("mapping", [None, "static"])
def test_single_pass_reads_with_the_previous_sites_weights(mapping):
    blocks, x = [branch(8) for _ in range(3)], torch.randn(2, 5, 8)
    stack = randomized(hc.SinglePassStack(blocks, 8, 4, constraint="shc", mapping=mapping))
    streams = x.unsqueeze(-2).expand(2, 5, 4, 8)
    previous = torch.tensor([1.0, 0, 0, 0]).expand(2, 5, 4)
    for site, block in zip(stack.connections, blocks, strict=True):
        pre, post, res = site.mappings(streams)
        y = block((previous.unsqueeze(-1) * streams).sum(-2))
        streams, previous = res @ streams + post.unsqueeze(-1) * y.unsqueeze(-2), pre
    torch.testing.assert_close(stack.before_collapse(x), streams)
    torch.testing.assert_close(stack(x), (previous.unsqueeze(-1) * streams).sum(-2))
    stack(x).sum().backward()
    assert all_get_gradients(stack)


def test_a_disabled_single_pass_stack_is_the_plain_twin():
    blocks, x = [branch(8) for _ in range(3)], torch.randn(5, 8)
    stack = randomized(hc.SinglePassStack(blocks, 8, 4))
    hc.disable(stack)
    assert torch.equal(stack(x), plain(blocks, x))


# --- looked at ------------------------------------------------------------------------------------


def test_every_part_can_be_inspected():
    network = nn.Sequential(
        hc.Expand(4),
        hc.FractionalConnection(8, 4, 2, nn.Linear(8, 8), constraint="shc"),
        hc.ExtraReads(hc.HyperConnection(8, 4, Recorder(), constraint="shc"), 1),
        hc.ResizingConnection(8, 6, 4, nn.Linear(8, 6), transform=nn.Linear(8, 6), constraint="shc"),
        hc.Collapse(),
    )
    x = torch.randn(3, 8)
    for report in (hc.inspect(network), hc.inspect(randomized(network), x)):
        assert [connection.matrix.shape[-1] for connection in report] == [8, 4, 4]
    hc.disable(network)
    with pytest.raises(ValueError, match=r"the streams of '1' are off. Call hyperconn.enable\(model\) first"):
        hc.inspect(network, x)
    assert len(hc.inspect(network)) == 3


def test_a_single_pass_stack_reports_the_matrices_it_applies():
    stack = randomized(hc.SinglePassStack([nn.Linear(8, 8) for _ in range(3)], 8, constraint="shc"))
    x = torch.randn(1, 8)
    first = stack.connections[0].residual_matrix(stack.expand(x))[0]
    torch.testing.assert_close(hc.inspect(stack, x)["connections.0"].matrix.float(), first)


PARTS = {
    "fractions": lambda: hc.FractionalConnection(8, 4, 2, nn.Linear(8, 8), constraint="shc"),
    "reads": lambda: hc.ExtraReads(hc.HyperConnection(8, 4, nn.Bilinear(8, 8, 8)), 1),
    "resizing": lambda: hc.ResizingConnection(8, 6, 4, nn.Linear(8, 6), transform=nn.Linear(8, 6)),
    "embedding": lambda: hc.StreamEmbedding(4, 8, retraction="cayley"),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_compiles_in_one_graph_and_copies(part):
    network = randomized(nn.Sequential(hc.Expand(4), PARTS[part](), hc.Collapse()))
    x, dtype = torch.randn(3, 8), torch.bfloat16
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network(x))
    assert torch.equal(pickle.loads(pickle.dumps(network))(x), network(x))
    assert network.to(dtype)(x.to(dtype)).dtype == dtype


@pytest.mark.parametrize("part", PARTS)
def test_every_part_takes_empty_batches_and_ranks_two_to_four(part):
    network = randomized(nn.Sequential(hc.Expand(4), PARTS[part](), hc.Collapse()))
    x = torch.randn(2, 3, 5, 8)
    torch.testing.assert_close(network(x).flatten(0, 2), network(x.flatten(0, 2)))
    assert network(x[:0]).shape[0] == 0


# --- bad input ------------------------------------------------------------------------------------


class Tuple(nn.Module):
    def forward(self, x):
        return x, 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hc.Read(8, 4)(torch.randn(2, 8)), ValueError, r"Read\(dim=8, streams=4\): expected \(\.\.\., 4, 8\), got \(2, 8\). Was the input expanded\?"),
        (lambda: hc.ExtraReads(hc.HyperConnection(8), 0), ValueError, r"ExtraReads: expected num_reads >= 1, got 0"),
        (lambda: hc.FractionalConnection(8, 2, 3), ValueError, r"FractionalConnection: expected fractions to divide dim=8, got 3"),
        (lambda: hc.FractionalConnection(8, 2, 0), ValueError, r"FractionalConnection: expected fractions >= 1, got 0"),
        (lambda: hc.FractionalConnection(8, 2, 2, mapping="flatt"), ValueError, r"FractionalConnection: unknown mapping 'flatt'; known: flat, per-stream, static"),
        (lambda: hc.FractionalConnection(8, 2, 2, nn.Identity())(torch.randn(3, 4, 4)), ValueError, r"FractionalConnection\(dim=8, streams=2, fractions=2\): expected \(\.\.\., 2, 8\), got \(3, 4, 4\)"),
        (lambda: hc.FractionalConnection(8, 2, 2, nn.Linear(8, 6))(torch.randn(3, 2, 8)), ValueError, r"expected a branch output \(3, 8\), got \(3, 6\)"),
        (lambda: hc.ResizingConnection(8, 6, 4, nn.Linear(8, 8), transform=nn.Linear(8, 6))(torch.randn(3, 4, 8)), ValueError, r"ResizingConnection\(dim=6, streams=4\): expected a branch output \(3, 6\), got \(3, 8\)"),
        (lambda: hc.EachStream(nn.Identity())(torch.randn(8)), ValueError, r"EachStream: expected \(\.\.\., n, C\), got \(8,\)"),
        (lambda: hc.StreamEmbedding(4, 8)(torch.randn(3, 8)), ValueError, r"StreamEmbedding\(streams=4, dim=8\): expected \(\.\.\., 4, 8\), got \(3, 8\)"),
        (lambda: hc.SinglePassStack([branch(8)], 8, collapse="sum"), TypeError, r"the last pre weights read the output; leave collapse= out"),
        (lambda: hc.SinglePassStack([Tuple()], 8)(torch.randn(2, 8)), TypeError, r"branch 0 returned tuple; expected a tensor"),
        (lambda: hc.Then(nn.Identity(), nn.Identity())("text"), TypeError, r"the branch returned str; expected a tensor"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_reading_is_the_functional_read():
    read = randomized(hc.Read(8, 4))
    streams = torch.randn(3, 4, 8)
    assert torch.equal(read(streams), functional.read(streams, read.weights(streams)))

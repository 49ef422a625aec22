"""Put four streams into a torch.nn.TransformerEncoder, train it for a moment, and look at its matrices.

    python examples/wrap_torch.py

For a trained encoder of yours: build it, load its state dict, then wrap. The function stays the same.
Layers with norm_first=False, and blocks of your own, take level="block".
"""

import torch
from torch import nn

import hyperconn as hc


def build_encoder(width: int = 32, layers: int = 3) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)


def main() -> None:
    torch.manual_seed(0)
    encoder = build_encoder()
    x = torch.randn(16, 10, 32)
    before = encoder(x)
    hc.wrap(encoder, streams=4, constraint="shc", level="sublayer")
    print(f"largest change by wrapping: {(encoder(x) - before).abs().max():.1e}")

    optimizer = torch.optim.AdamW(hc.parameter_groups(encoder, weight_decay=0.1), lr=3e-3)
    for step in range(40):
        loss = (encoder(x) - x.roll(1, dims=1)).square().mean()  # every token predicts the one before it
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss:.4f}")
    print(hc.inspect(encoder, x))

    hc.unwrap(encoder)
    print(f"unwrapped: {hc.is_wrapped(encoder)=}")


if __name__ == "__main__":
    main()

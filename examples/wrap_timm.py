"""Put four streams into a vision transformer of timm and train it for a moment.

    pip install 'hyperconn[timm]'
    python examples/wrap_timm.py

This runs on a tiny model with random weights. For a real checkpoint replace build_model() by

    timm.create_model("vit_base_patch16_224", pretrained=True)

and feed images of its size; the wrapped model classifies exactly as before, and trains on from there.
"""

import torch
from timm.models.vision_transformer import VisionTransformer

import hyperconn as hc


def build_model() -> VisionTransformer:
    return VisionTransformer(img_size=16, patch_size=4, embed_dim=32, depth=3, num_heads=4, num_classes=4)


def main() -> None:
    torch.manual_seed(0)
    model = build_model()
    labels = torch.arange(32) % 4
    images = torch.randn(32, 3, 16, 16) + labels[:, None, None, None]  # brightness tells the class
    before = model(images)
    hc.wrap(model, streams=4, constraint="shc", level="sublayer")
    print(f"largest change by wrapping: {(model(images) - before).abs().max():.1e}")

    optimizer = torch.optim.AdamW(hc.parameter_groups(model, weight_decay=0.05), lr=3e-3)
    for step in range(20):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss:.4f}")
    print(hc.inspect(model, images))


if __name__ == "__main__":
    main()

"""Put four streams into a Llama-type model of transformers: train only the connections, generate, save, load.

    pip install 'hyperconn[huggingface]'
    python examples/wrap_huggingface.py

This runs on a tiny model with random weights. For a real checkpoint replace build_model() by

    AutoModelForCausalLM.from_pretrained("...", dtype=torch.bfloat16)

and leave the rest as it is: the connections stay in float32. Families without an adapter take level="block".
"""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import hyperconn as hc


def build_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, vocab_size=64,
        initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def main() -> None:
    torch.manual_seed(0)
    model = build_model()
    model.requires_grad_(False)  # leave this out to train everything
    ids = torch.arange(3, 63).reshape(6, 10)
    with torch.no_grad():
        before = model(ids).logits
        hc.wrap(model, streams=4, constraint="shc", level="sublayer")
        print(f"largest change by wrapping: {(model(ids).logits - before).abs().max():.1e}")

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = sum(parameter.numel() for parameter in model.parameters())
    print(f"training {sum(parameter.numel() for parameter in trained)} of {total} parameters")
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, weight_decay=0.0), lr=3e-2)
    for step in range(30):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss:.4f}")

    prompts = torch.tensor([[0, 0, 3, 4], [13, 14, 15, 16]])  # the first is padded on the left
    print(model.generate(prompts, attention_mask=(prompts != 0).long(), max_new_tokens=6, do_sample=False).tolist())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = hc.load_wrapped(folder)
    with torch.no_grad():
        print(f"loaded model gives the same logits: {torch.equal(loaded(ids).logits, model(ids).logits)}")
    print(hc.inspect(model, ids))


if __name__ == "__main__":
    main()

"""The parts of ``train_gpt.py``, one concept per file."""

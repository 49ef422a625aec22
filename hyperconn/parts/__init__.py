"""Parts that go around a connection or its branch; each is one idea and composes with the others."""

from .fractions import FractionalConnection
from .layout import ChannelFirst, ChannelLast
from .reads import ExtraReads, Read
from .resizing import EachStream, ResizingConnection
from .single_pass import SinglePassStack
from .stream_embedding import StreamEmbedding
from .then import Then

__all__ = [
    "ChannelFirst",
    "ChannelLast",
    "EachStream",
    "ExtraReads",
    "FractionalConnection",
    "Read",
    "ResizingConnection",
    "SinglePassStack",
    "StreamEmbedding",
    "Then",
]

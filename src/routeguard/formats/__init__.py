"""What a provider's answer says it used, read as the answer passes by."""

from routeguard.formats.answer import answer_reader
from routeguard.formats.body import body_reader
from routeguard.formats.frames import frame_reader
from routeguard.formats.lines import line_reader
from routeguard.formats.reader import UsageReader
from routeguard.formats.stream import stream_reader

__all__ = ["UsageReader", "answer_reader", "body_reader", "frame_reader", "line_reader", "stream_reader"]

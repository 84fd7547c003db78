"""What a provider's answer says it used, read as the answer passes by."""

from routeguard.formats.body import body_reader
from routeguard.formats.reader import UsageReader
from routeguard.formats.stream import stream_reader

__all__ = ["UsageReader", "body_reader", "stream_reader"]

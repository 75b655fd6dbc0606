"""Compression around any protocol: what is sent goes through a codec, with or without error feedback."""

from walktalk.protocols.compression.wrapper import UNCODED, Compressed, compressed

__all__ = ["UNCODED", "Compressed", "compressed"]

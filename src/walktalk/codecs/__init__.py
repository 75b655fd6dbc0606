"""Codecs: smaller forms of a model for the wire. One file each; a protocol names one in `Encode` and its `messages`."""

from walktalk.codecs.brain_float import BrainFloat
from walktalk.codecs.codec import CODECS, Bytes, Codec, approximated, codec_named, coded_width
from walktalk.codecs.part import Part
from walktalk.codecs.quantized import EightBits, FourBits
from walktalk.codecs.random_bits import hashed, uniform
from walktalk.codecs.top_k import TopK

for _codec in (BrainFloat, EightBits, FourBits, Part, TopK):
    CODECS.add(_codec.name, _codec)

__all__ = [
    "CODECS",
    "BrainFloat",
    "Bytes",
    "Codec",
    "EightBits",
    "FourBits",
    "Part",
    "TopK",
    "approximated",
    "codec_named",
    "coded_width",
    "hashed",
    "uniform",
]

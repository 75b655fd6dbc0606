"""Codecs: smaller forms of a model for the wire. One file each; a protocol names one in `Encode` and its `messages`."""

from walktalk.codecs.brain_float import BrainFloat
from walktalk.codecs.codec import CODECS, Bytes, Codec, approximated, codec_named
from walktalk.codecs.models import decode_model, encode_model, model_size, seen_models
from walktalk.codecs.part import CodedPart, Part
from walktalk.codecs.quantized import EightBits, FourBits
from walktalk.codecs.random_bits import hashed, hashed_number, uniform
from walktalk.codecs.top_k import TopK
from walktalk.lazy import listing

for _codec in (BrainFloat, EightBits, FourBits, Part, TopK):
    CODECS.add(_codec.name, _codec)

__all__ = [
    "CODECS",
    "BrainFloat",
    "Bytes",
    "Codec",
    "CodedPart",
    "EightBits",
    "FourBits",
    "Part",
    "TopK",
    "approximated",
    "codec_named",
    "decode_model",
    "encode_model",
    "hashed",
    "hashed_number",
    "model_size",
    "seen_models",
    "uniform",
]

__dir__ = listing(__all__)

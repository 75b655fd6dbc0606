"""What a study is: the keys of a specification, what each may be, and the ways from and to YAML."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

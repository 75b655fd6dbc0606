"""Number rules: those that look at the numbers, as screens against bad models do. A protocol names one in `Apply`."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

# Who asks for one by its name finds all of them; a new file of rules is a line here.
import walktalk.transforms.rules.aggregation  # noqa: E402
import walktalk.transforms.rules.noise  # noqa: E402, F401

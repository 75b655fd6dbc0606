from .digest import Digest as Digest
from .multi_walk import MultiWalk as MultiWalk
from .token_saga import TokenSaga as TokenSaga
from .walkman import Walkman as Walkman
from .weighted_walk import WeightedWalk as WeightedWalk

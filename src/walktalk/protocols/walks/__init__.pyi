from .digest import Digest as Digest
from .multi_walk import MultiWalk as MultiWalk
from .token_saga import TokenSaga as TokenSaga
from .tour import Tour as Tour
from .tram_fl import TramFL as TramFL
from .walkman import Walkman as Walkman
from .weighted_walk import WeightedWalk as WeightedWalk

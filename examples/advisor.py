"""Which algorithm, before anything is deployed: the advisor tries, and says what it will cost."""

import walktalk as wt
from walktalk.advisor import Goal, advise_study, amount

spec = wt.load_spec("smoke", ["network.topology=star", "network.nodes=8"])
for objective in ("bits", "time"):
    advice = advise_study(spec, Goal(objective, target_loss=1.0), device="cpu")
    best, cost = advice.best, amount(objective, advice.cost)
    print(f"{objective}: {best.protocol.label} with learning rate {best.lr:g}, for {cost}")

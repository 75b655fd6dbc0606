"""Which algorithm, before anything is deployed: the advisor tries, and says why."""

import walktalk as wt
from walktalk.advisor import Goal, advise, as_json

spec = wt.load_spec("smoke", ["network.topology=star", "network.nodes=8"])
for objective in ("bits", "time"):
    advice = advise(spec, Goal(objective, target_loss=1.0), device="cpu")
    told = as_json(advice)
    print(f"{objective}: {advice.best.label} with learning rate {advice.best.lr:g}")
    print(f"  {told['why'][0]}")

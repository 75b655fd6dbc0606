"""Which algorithm, before anything is deployed: the advisor tries, says what it will cost, and carries it out."""

import walktalk as wt

task = wt.tasks.digits(nodes=8, alpha=1.0, seed=0)  # or one of your own, as in own_data.py
graph = wt.graphs.star(8)
for objective in ("bits", "time"):
    advice = wt.advise(task, graph, objective=objective, target_loss=1.0, evaluate=wt.Evaluate(every=10))
    run = advice.run()
    last = run.history.iloc[-1]
    reached = "the target is reached" if last["train_loss"] <= 1.0 else "the target is missed"
    print(f"{objective}: {advice.best.protocol.title}; {reached}")

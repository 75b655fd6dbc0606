"""BENCHMARKS-PUBLISHED.md from the histories in results/: the published numbers, ours and the differences.

    python reproduction/published_tables.py > BENCHMARKS-PUBLISHED.md

Every number in it comes from a CSV file there, or from `walktalk.reproduction.published`, which has the published ones.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pandas as pd
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.records import read_history
from walktalk.reproduction import published
from walktalk.reproduction.published.relay_sgd import BYTES_OF_A_MODEL, EPOCHS, STEPS, WORKERS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "2026-11-16-published"
FURTHER = ("each_test_accuracy_worst", "each_test_accuracy_mean", "mean_test_accuracy")
LATER = ROOT / "results" / "2026-11-18-published"  # on two cores


def main() -> None:
    one, two, five, quasi = (published.find_table(name) for name in ("table1", "table2", "table5", "qg"))
    cells, digits = published.compared(one, RESULTS), of_both(five)
    lost, norms = with_those_of_table1(two, cells), published.compared(quasi, RESULTS)
    text = (ROOT / "reproduction" / "published_tables.template.md").read_text(encoding="utf-8")
    known = [cell for cell in digits if cell.published is not None]
    rank = spearmanr([cell.published for cell in known], [cell.ours for cell in known]).statistic
    pairs = [(x, y) for k, x in enumerate(known) for y in known[:k]]
    context = [cell for cell in known if abs(cell.difference or 0.0) > five.within]
    ours = {(cell.row.name, cell.column): cell.ours for cell in cells}
    cut_off = published.compared(replace(quasi, name="qg-eight-groups"), RESULTS)
    lower = published.compared(quasi, RESULTS / "lower-rates")
    seeds = seeds_of(five, digits)
    found5 = {cell.row.name: cell.ours for cell in digits}
    by_loss = {(cell.row.name, cell.column): cell for cell in lost}
    stopped = published.compared(replace(two, name="table2-stopped"), RESULTS)
    again, again2 = both_rules(one, cells), both_rules(two, lost)
    assert all(abs(cell.ours - now.ours) < 1.0 for cell, now in again + again2)  # so the text says
    strays = [cell for cell in known if not is_inside(cell, seeds, five.within)]
    by_norm = {cell.row.name: cell.ours for cell in norms}
    print(
        text.format(
            table1=published.as_markdown(one, cells),
            over=f"{ours['walks4-ring', 'alpha0.01'] - ours['dpsgd-ring', 'alpha0.01']:.0f}",
            walk1=" and ".join(f"{ours['walks1-ring', column]:.1f}" for column in ("alpha0.1", "alpha0.01")),
            slow1=f"{ended('walks1-ring') / ended('dpsgd-ring'):.0f}",
            own1=published.as_markdown(one, published.compared(replace(one, name="table1-own-split"), RESULTS)),
            bytes1=bytes_said(),
            ranges1=ranges_said(cells),
            left1=left(one, cells),
            table2=published.as_markdown(two, lost),
            left2=left(two, [*lost, *stopped]),
            stopped2=stopped_said(stopped),
            relay2=f"{by_loss['relay-m-trees', 'lost0'].ours:.1f}",
            sgp2=f"{by_loss['sgp-m-exponential', 'lost1'].difference:.1f}",
            qg2=f"{by_loss['qg-ring', 'lost10'].ours:.1f}",
            first2=first_code_said(stopped),
            early2=early_said(two, stopped),
            weights2=weights_said(),
            rules2=rules_said(),
            spikes2=spikes_said(one),
            qg=published.as_markdown(quasi, norms),
            cutqg=last_said(cut_off),
            leftqg=left(quasi, norms),
            lowqg=published.as_markdown(quasi, lower),
            lower=", ".join(f"{cell.ours:.1f}" for cell in lower),
            norm=f"{by_norm['walks4-group'] - by_norm['walks4-batch']:.1f}",
            overqg=f"{by_norm['walks4-group'] - by_norm['qg-group']:.1f}",
            before2=before_said(two),
            again1=again_said(again),
            again2=again_said(again2),
            **splits_of(one, cells),
            splits1=splits_said(),
            rings1=rings_said(),
            sums1=sums_said(),
            courses1=courses(one),
            narrow1=narrow_said(one),
            narrow_ends1=narrow_ends_said(one),
            drawn1={name: drawn_said(name) for name in ("dpsgd", "d2")},
            softmax5=softmax_said(),
            table5=published.as_markdown(five, digits),
            rank5=f"{rank:.2f}",
            rows5=len(known),
            pairs5=len(pairs),
            swaps5=sum((x.published - y.published) * (x.ours - y.ours) < 0 for x, y in pairs),
            within5=len(known) - len(context),
            outside5=", ".join(f"{cell.row.title} ({cell.difference:+.1f})" for cell in context),
            seeds5=seeds_said(known, seeds),
            widest5=f"{max(max(seeds[c.row.name].values()) - min(seeds[c.row.name].values()) for c in known):.0f}",
            inside5=len(known) - len(strays),
            strays5="".join(f"; {cell.row.title}'s is not ({cell.published:.1f})" for cell in strays),
            ceca5=f"{found5['ceca']:.1f} %",
            inexact5=inexact_said(five),
            exact5=", ".join(f"{value:.1f}" for value in seeds["d2-ring"].values()),
            code5=f"{found5['ceca-code']:.1f} %",
            moved5=moves_said(five, "d2-ring"),
            walks5={n: " and ".join(f"{v:.1f}" for v in seeds[n].values()) for n in seeds if n.startswith("walks")},
        ),
        end="",
    )


def of_both(table: published.Table) -> list[published.Compared]:
    """A table's cells, whenever they were run, in its own order."""
    found = {cell.row.name: cell for folder in (RESULTS, LATER) for cell in published.compared(table, folder)}
    return [found[row.name] for row in table.rows if row.name in found]


def with_those_of_table1(table: published.Table, cells: list[published.Compared]) -> list[published.Compared]:
    """Table 2, and where nothing is lost and settings are those of Table 1, what was found there."""
    found = {(cell.row.name, cell.column): cell for cell in published.compared(table, RESULTS)}
    for cell in cells:
        same = [row for row in table.rows if row.name == cell.row.name and row.cells["lost0"].lr == cell.lr]
        if cell.column == "alpha0.01" and same:
            known = same[0].cells["lost0"].value
            found.setdefault((cell.row.name, "lost0"), cell._replace(row=same[0], column="lost0", published=known))
    return [found[row.name, column] for row, column in table.cells() if (row.name, column) in found]


def ranges_said(cells: list[published.Compared]) -> str:
    """How often ours is within what three published seeds span, and how far outside it is where it is not."""
    spans = [(cell.row.cells[cell.column].seeds, cell.ours) for cell in cells if not cell.diverged]
    off = [max(round(ours, 1) - max(seeds), min(seeds) - round(ours, 1)) for seeds, ours in spans if len(seeds) == 3]
    above = sum(round(ours, 1) > max(seeds) for seeds, ours in spans if len(seeds) == 3)
    context = [points for points in off if points > 0]
    far = ", ".join(f"{points:.1f}" for points in sorted(context))
    return (
        f"{len(off)} cells whose three published seeds are known and in which ours came to its end, it is within their "
        f"range in {len(off) - len(context)}, above it in {above} and below it in {len(context) - above}, by "
        f"{far} points"
    )


def rules_said() -> str:
    """The worst node's accuracy in small by what stands for messages that are lost, seed after seed."""
    some = pd.read_csv(RESULTS / "lost_rules.csv").query("algorithm == 'relay'")
    each = {
        which: ", ".join(f"{100 * v:.0f}" for v in rows)
        for which, rows in some.groupby(["rate", "lost", "rule"])["worst"]
    }
    lines = ["| rate | lost | the trained model | the model before |", "|---|---|---|---|"]
    for rate, lost in sorted({which[:2] for which in each}):
        lines.append(f"| {rate:g} | {lost:.0%} | {each[rate, lost, 'trained']} | {each[rate, lost, 'before']} |")
    return "\n".join(lines) + "\n"


def spikes_said(table: published.Table) -> str:
    """How pairwise gossip went without losses, and with them."""
    row, said = table.row("gossip-ring"), []
    both = {"none": published.history_of(RESULTS, table, row, "alpha0.01")}
    both["10 %"] = RESULTS / "table2" / "lost10" / "gossip-ring.csv"
    for name, path in both.items():
        history = read_history(path)
        at = history.set_index(history["iteration"] // (WORKERS * STEPS))
        shown = [(epoch, at["each_test_accuracy_worst"][epoch], at["consensus"][epoch]) for epoch in (112, 140, 168)]
        words = (f"{epoch}: {100 * a:.0f} ({c:.2g})" if a == a else f"{epoch}: no numbers" for epoch, a, c in shown)
        said.append(f"{name} lost: {', '.join(words)}")
    return "; ".join(said)


def ended(name: str) -> float:
    """When a row of Table 1 comes to its end, in virtual seconds."""
    return float(read_history(RESULTS / "table1" / "alpha0.1" / f"{name}.csv")["time"].iloc[-1])


SEEDS = {"1": "seed 1", "2": "seed 2", "before": "earlier"}  # folders, and what they are called


def seeds_of(table: published.Table, cells: list[published.Compared]) -> dict[str, dict[str, float]]:
    """By row, what each seed gave."""
    found = {cell.row.name: {"seed 0": cell.ours} for cell in cells}
    again = {cell.row.name for cell in published.compared(table, LATER)}  # new, or run again after a mend
    for folder, title in SEEDS.items():
        before = published.compared(table, RESULTS / "other-seeds" / folder)
        kept = [cell for cell in before if cell.row.name not in again]
        for cell in [*kept, *published.compared(table, LATER / "other-seeds" / folder)]:
            found[cell.row.name][title] = cell.ours
    return found


def inexact_said(table: published.Table) -> str:
    """What D² had with weights whose sum in 32 bits is not one."""
    folders = [RESULTS, *(RESULTS / "other-seeds" / folder for folder in SEEDS)]
    cells = [cell for folder in folders for cell in published.compared(table, folder) if cell.row.name == "d2-ring"]
    return ", ".join(f"{cell.ours:.1f}" for cell in cells)


def seeds_said(cells: list[published.Compared], seeds: dict[str, dict[str, float]]) -> str:
    """A line a row: the published number, and each seed's."""
    names = ["seed 0", *SEEDS.values()]
    lines = [f"| algorithm | published | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for cell in cells:
        given = seeds[cell.row.name]
        values = " | ".join(f"{given[name]:.1f}" if name in given else "–" for name in names)
        lines.append(f"| {cell.row.title} | {cell.published:.1f} | {values} |")
    return "\n".join(lines) + "\n"


def is_inside(cell: published.Compared, seeds: dict[str, dict[str, float]], within: float) -> bool:
    """Whether the published number is one that our seeds might have given."""
    values = seeds[cell.row.name].values()
    return cell.published is not None and min(values) - within <= cell.published <= max(values) + within


def moves_said(table: published.Table, name: str) -> str:
    """By how many points the last two evaluations of a row differ, seed by seed."""
    folders = [LATER, *sorted((LATER / "other-seeds").iterdir())]
    paths = [published.history_of(folder, table, table.row(name), "sorted") for folder in folders]
    histories = [read_history(path) for path in paths if path.is_file()]
    ends = [history[table.measure].iloc[-2:].to_list() for history in histories]
    return ", ".join(f"{100 * abs(last - before):.1f}" for before, last in ends)


def before_said(table: published.Table) -> str:
    """What was left of RelaySGD's models with its former rule."""
    said = []
    for column, share in (("lost1", "1 %"), ("lost10", "10 %")):
        cell = table.row("relay-m-trees")
        history = read_history(published.history_of(RESULTS / "old-rule", table, cell, column))
        first = history[history["iteration"] > 0].iloc[0]
        assert pd.isna(first["each_test_accuracy_worst"])
        said.append(f"{share}: no numbers at epoch {first['iteration'] // (WORKERS * STEPS):.0f}")
    return ", ".join(said)


Both: TypeAlias = list[tuple[published.Compared, published.Compared]]


def both_rules(table: published.Table, cells: list[published.Compared]) -> Both:
    """RelaySGD's cells that came to their end with its former rule, and the same with the published one."""
    now = {(cell.row.name, cell.column): cell for cell in cells}
    before = published.compared(table, RESULTS / "old-rule")
    return [(cell, now[cell.row.name, cell.column]) for cell in before if not cell.diverged]


def again_said(both: Both) -> str:
    return ", ".join(f"{named(cell)}: {cell.ours:.1f} and {now.ours:.1f}" for cell, now in both)


def named(cell: published.Compared) -> str:
    """A cell of RelaySGD."""
    title = cell.row.title.removeprefix("RelaySGD, ").removeprefix("RelaySGD ")
    alpha = cell.column.removeprefix("alpha")
    return f"{title}, α = {alpha}" if alpha != cell.column else f"{title}, none lost"


SPLITS = ("2", "3")  # of the published seeds, beside the first, which the table has


def splits_of(table: published.Table, cells: list[published.Compared]) -> dict[str, str]:
    """D-PSGD at α = 0.01 with the splits of all published seeds."""
    which = ("dpsgd-ring", "alpha0.01")
    first = next(cell for cell in cells if (cell.row.name, cell.column) == which)
    others = (published.compared(table, RESULTS / "other-splits" / split) for split in SPLITS)
    all_three = [first, *(cell for found in others for cell in found)]
    assert len(all_three) == 3
    return {
        "splits3": ", ".join(f"{cell.ours:.1f}" for cell in all_three),
        "nodes3": ", ".join(f"{cell.each['each_test_accuracy_mean']:.1f}" for cell in all_three),
        "mean3": f"{sum(cell.ours for cell in all_three) / 3:.1f}",
        "known3": f"{first.published:.1f}",
        "over3": f"{first.difference:.1f}",
    }


LOST = {"lost1": "1 %", "lost10": "10 %"}


def stopped_said(cells: list[published.Compared]) -> str:
    """Cells that were ended on purpose, and when."""
    epochs = {cell.iterations // (WORKERS * STEPS) for cell in cells}
    names = {column: [cell.row.name for cell in cells if cell.column == column] for column in LOST}
    listed = "; ".join(f"{column}: {', '.join(rows)}" for column, rows in names.items())
    return f"Ended at epoch {' and '.join(map(str, sorted(epochs)))}: {listed}"


def first_code_said(cells: list[published.Compared]) -> str:
    """What is left of the models with the weights of the authors' first code."""
    found = {cell.column: cell for cell in cells if cell.row.name == "qg-first-code-ring"}
    losses = " and ".join(f"{found[column].each['train_loss']:.4f}" for column in LOST)
    return f"the mean model's training loss is {losses}, where a model that knows nothing has ln 10 = 2.3026"


def early_said(table: published.Table, cells: list[published.Compared]) -> str:
    """How quasi-global momentum stands at epoch 28, by what is done with weights."""
    early = published.compared(table, RESULTS, until=28 * STEPS * WORKERS)
    found = {(cell.row.name, cell.column): cell.each for cell in [*early, *cells]}
    rows = {
        "qg-first-code-ring": "the authors' first code",
        "qg-divide-ring": "divided by their sum, as mended",
        "qg-ring": "the node keeps what is missing",
    }
    lines = [f"| weights | {' | '.join(f'{share} lost' for share in LOST.values())} |", "|---|---|---|"]
    for name, title in rows.items():
        each = (found[name, column] for column in LOST)
        said = (f"{one['each_test_accuracy_mean']:.1f} ({one['each_test_accuracy_worst']:.1f})" for one in each)
        lines.append(f"| {title} | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


def weights_said() -> str:
    """The same in small, to the end: the worst node's accuracy seed after seed, and how large parameters are."""
    some = pd.read_csv(RESULTS / "lost_rules.csv").query("algorithm == 'qg'")
    each = {
        which: f"{', '.join(f'{100 * v:.0f}' for v in rows['worst'])} ({rows['size'].mean():.2g})"
        for which, rows in some.groupby(["rate", "lost", "rule"])
    }
    lines = ["| rate | lost | first code | divided | kept |", "|---|---|---|---|---|"]
    for rate, lost in sorted({which[:2] for which in each}):
        cells = " | ".join(each[rate, lost, rule] for rule in ("first", "divided", "kept"))
        lines.append(f"| {rate:.2g} | {lost:.0%} | {cells} |")
    return "\n".join(lines) + "\n"


def last_said(cells: list[published.Compared]) -> str:
    """What was measured last, and when."""
    lines = ["| algorithm | α | rate | epoch | worst node | mean node | mean model |", "|---|---|---|---|---|---|---|"]
    for cell in cells:
        title = f"*{cell.row.title}*" if cell.row.is_ours else cell.row.title
        measured = " | ".join(f"{cell.each[name]:.1f}" for name in FURTHER)
        epoch, alpha = cell.iterations // (WORKERS * STEPS), cell.column.removeprefix("alpha")
        lines.append(f"| {title} | {alpha} | {cell.lr:g} | {epoch} | {measured} |")
    return "\n".join(lines) + "\n"


def bytes_said() -> str:
    """What the ledger says of D-PSGD, beside the published number."""
    history = read_history(RESULTS / "table1" / "alpha0.1" / "dpsgd-ring.csv")
    each = int(history["model_bits"].iloc[-1]) // 8 // WORKERS
    assert each == EPOCHS * STEPS * 2 * BYTES_OF_A_MODEL
    at_198 = each * 198 // EPOCHS
    return f"{each:,} bytes a worker after {EPOCHS} epochs, so {at_198:,} at epoch 198: {at_198 / 2**20:,.0f} MiB"


def splits_said() -> str:
    """How uneven the splits are."""
    splits = pd.read_csv(RESULTS / "splits.csv", index_col=0)["node"]
    drawn = splits[splits.index.str.isdigit()]
    three = ", ".join(f"{splits[f'published {k}']:.3f}" for k in (1, 2, 3))
    lighter = (drawn < splits["earlier"]).mean()
    return (
        "How far a node's classes are from all alike (total variation, mean over nodes): "
        f"{splits['earlier']:.3f} there, {three} in the three published splits, {drawn.mean():.3f} ± {drawn.std():.3f} "
        f"in {len(drawn)} drawn like them, of which {lighter:.0%} are less uneven"
    )


def rings_said() -> str:
    """What stays of noise with D²."""
    rings = pd.read_csv(RESULTS / "d2.csv", index_col="round")
    half, end = rings.iloc[len(rings) // 2], rings.iloc[-1]
    return "; ".join(f"{name}: {half[name]:.2g}, then {end[name]:.2g}" for name in rings)


def sums_said() -> str:
    """How D² went with weights that sum to one almost and exactly: mean node's accuracy, in brackets the size."""
    lines = pd.read_csv(RESULTS / "d2_sums.csv")
    rounds = sorted(lines["round"].unique())
    told = [
        f"| weights | seed | {' | '.join(f'round {number:,}' for number in rounds)} |",
        "|---" * (len(rounds) + 2) + "|",
    ]
    for (kind, seed), run in lines.groupby(["weights", "seed"], sort=False):
        ends = [f"{100 * one['mean']:.0f} ({one.rms:.2f})" if one.rms == one.rms else "–" for _, one in run.iterrows()]
        told.append(f"| {kind} | {seed} | {' | '.join(ends)} |")
    return "\n".join(told) + "\n"


def drawn_said(algorithm: str) -> str:
    """The worst node's accuracy by how batches are drawn, seed after seed."""
    lines = pd.read_csv(RESULTS / "replacement.csv").query("algorithm == @algorithm").groupby("drawn")["worst"]
    each = {kind: ", ".join(f"{100 * value:.1f}" for value in values) for kind, values in lines}
    return f"{each['with']} with replacement, {each['without']} without"


def courses(table: published.Table) -> str:
    """How D²'s runs went: at each evaluation the mean worker's accuracy and how far models are from each other."""
    shown = [(row, column) for row, column in table.cells() if row.name.startswith("d2")]
    return course_lines(
        {
            f"{row.title}, α = {column.removeprefix('alpha')}: {when}": path
            for row, column in shown
            for when, folder in (("before", RESULTS / "old-sums"), ("after", RESULTS))
            if (path := published.history_of(folder, table, row, column)).is_file()
        }
    )


def narrow_said(table: published.Table) -> str:
    """D²'s cells with a quarter of the channels, by the weights that D² averages with."""
    return course_lines(
        {
            f"{row.title}, α = {column.removeprefix('alpha')}: {kind}": path
            for row, column in table.cells()
            if row.name.startswith("d2")
            for kind in ("nearest", "exact")
            if (path := published.history_of(LATER / "d2-narrow" / kind, table, row, column)).is_file()
        }
    )


def narrow_ends_said(table: published.Table) -> str:
    """Where those with exact weights end, beside what is published for all channels."""
    lines = ["| cell | published, all channels | worst worker | mean worker | mean model |", "|---" * 5 + "|"]
    for cell in published.compared(table, LATER / "d2-narrow" / "exact"):
        each = " | ".join(f"{cell.each[name]:.1f}" for name in FURTHER)
        lines.append(f"| {cell.row.title}, α = {cell.column.removeprefix('alpha')} | {cell.published:.1f} | {each} |")
    return "\n".join(lines) + "\n"


def course_lines(histories: dict[str, Path]) -> str:
    """A line a run, at every 28th epoch."""
    epochs = [28 * k for k in range(1, 8)]
    lines = [f"| | {' | '.join(f'epoch {epoch}' for epoch in epochs)} |", "|---" * (len(epochs) + 1) + "|"]
    for title, path in histories.items():
        history = read_history(path)
        at = history.set_index(history["iteration"] // (WORKERS * STEPS))
        cells = [
            "–"
            if epoch not in at.index or pd.isna(at["consensus"][epoch])
            else f"{100 * at['each_test_accuracy_mean'][epoch]:.0f} ({at['consensus'][epoch]:.3g})"
            for epoch in epochs
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def softmax_said() -> str:
    """The same with a network that ends as usual."""
    last = pd.read_csv(RESULTS / "softmax.csv").iloc[-1]
    return (
        f"On the complete graph, where averaging is exact, that network has {100 * last['batch']:.1f} % after "
        f"{last['iteration']:.0f} iterations, and {100 * last['classes']:.1f} % where it ends as usual "
        "(`results/2026-11-16-published/batch_softmax.py`): so on that graph the network keeps the number low, not the "
        "algorithm; others were not tried."
    )


def left(table: published.Table, cells: list[published.Compared]) -> str:
    """Cells that were not run."""
    done = {(cell.row.name, cell.column) for cell in cells}
    names = {column: [row.name for row, c in table.cells() if c == column] for column in table.columns}
    missing = {column: [name for name in rows if (name, column) not in done] for column, rows in names.items()}
    return "; ".join(f"{column}: {', '.join(rows)}" for column, rows in missing.items() if rows)


if __name__ == "__main__":
    main()

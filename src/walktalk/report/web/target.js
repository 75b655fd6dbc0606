/* The target line: dragged, moved by keys or typed; who gets there first, and at what cost on each axis. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { el } = window.Walktalk.dom;
  const { onAxis, ofMetric } = window.Walktalk.format;
  const { reaches, meanOf } = window.Walktalk.series;
  const { verdicts } = window.Walktalk.deciding;
  const LEAST = { iteration: "fewest iterations", bits: "least data sent" };

  /* A name within a sentence: "one walk", but "ADMM" and "FedAdam"; as `within` in report/page/data.py. */
  const within = (name) => (/^.[\p{Ll}]+(?: |$)/u.test(name) ? name[0].toLowerCase() + name.slice(1) : name);

  class Target {
    constructor(root, data) {
      this.root = root;
      this.values = {}; // by metric
      this.chosen = false; // whether a person has moved it
      this.onset = () => {}; // called when one does
      this.build();
      this.update(data);
    }

    build() {
      this.field = el("input", { type: "number", id: "target", step: "any", inputmode: "decimal" });
      this.field.addEventListener("change", () => { if (this.field.value !== "") this.move(Number(this.field.value)); });
      this.fieldLabel = el("label", { for: "target" }, "Target");
      this.sentence = el("p", { class: "verdict small", id: "target-sentence", role: "status" });
      this.table = el("table", { class: "results costs", id: "target-table" });
      this.root.replaceChildren(
        el("div", { class: "field row" }, this.fieldLabel, this.field, el("span", { class: "note" }, "or drag the dashed line in the chart")),
        this.sentence,
        el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Cost of reaching the target" }, this.table),
      );
      this.line = el("div", { class: "target-line", role: "slider", tabindex: "0", "aria-orientation": "vertical" }, el("span", { "aria-hidden": "true" }));
      this.line.addEventListener("pointerdown", (event) => this.grab(event));
      this.line.addEventListener("keydown", (event) => this.key(event));
    }

    update(data) {
      this.data = data;
      if (data.target !== null && this.values.train_loss === undefined) this.values.train_loss = data.target;
    }

    /* The chart shows something else now. */
    attach(curves) {
      this.curves = curves;
      const held = document.activeElement === this.line;
      if (this.line.parentNode !== curves.plot.over) {
        curves.plot.over.append(this.line);
        if (held) this.line.focus();
      }
      if (this.values[curves.metric.key] === undefined) this.values[curves.metric.key] = this.usual();
      this.show();
    }

    get metric() { return this.curves.metric; }
    get value() { return this.values[this.metric.key]; }

    /* What every run has reached: the worst of their bests. */
    usual() {
      const { key, less } = this.metric;
      const bests = this.data.algorithms.flatMap((algorithm) => this.data.runs[algorithm.label].map((run) => {
        const known = run[key].filter((value) => value !== null);
        return less ? Math.min(...known) : Math.max(...known);
      })).filter(Number.isFinite);
      return bests.length ? (less ? Math.max(...bests) : Math.min(...bests)) : 0;
    }

    move(value) {
      this.values[this.metric.key] = value;
      this.chosen = true;
      this.show();
      this.onset();
    }

    // -- the line ------------------------------------------------------------------------------------------------------

    show() {
      const { plot, limits } = this.curves;
      const [low, high] = limits;
      this.root.hidden = this.data.kind === "cluster"; // whose operator compares nothing
      this.line.hidden = this.root.hidden || !(this.value >= low && this.value <= high);
      if (!this.line.hidden) this.line.style.top = `${plot.valToPos(this.value, "y")}px`;
      const told = { "aria-label": `Target: ${this.metric.name}`, "aria-valuemin": low, "aria-valuemax": high,
        "aria-valuenow": this.value, "aria-valuetext": ofMetric(this.metric, this.value) };
      Object.entries(told).forEach(([name, value]) => this.line.setAttribute(name, value));
      this.fieldLabel.textContent = `Target: ${this.metric.name.toLowerCase()}${this.metric.unit ? ` (${this.metric.unit})` : ""}`;
      if (document.activeElement !== this.field || Number(this.field.value) !== this.value) this.field.value = Number(this.value.toPrecision(4));
      this.tell();
    }

    grab(event) {
      event.preventDefault();
      event.stopPropagation(); // the chart would begin to zoom
      this.line.focus();
      this.line.setPointerCapture(event.pointerId);
      const { plot, limits } = this.curves;
      const move = (moved) => {
        const top = Math.min(Math.max(moved.clientY - plot.over.getBoundingClientRect().top, 0), plot.over.clientHeight);
        this.move(Math.min(Math.max(plot.posToVal(top, "y"), limits[0]), limits[1]));
      };
      this.line.addEventListener("pointermove", move);
      const done = () => this.line.removeEventListener("pointermove", move);
      this.line.addEventListener("pointerup", done, { once: true });
      this.line.addEventListener("pointercancel", done, { once: true });
    }

    key(event) {
      const steps = { ArrowUp: -2, ArrowRight: -2, ArrowDown: 2, ArrowLeft: 2, PageUp: -20, PageDown: 20 }; // pixels
      const ends = { Home: 0, End: 1 };
      const { plot, limits } = this.curves;
      if (event.key in ends) this.move(limits[ends[event.key]]);
      else if (event.key in steps) {
        const top = plot.valToPos(this.value, "y") + steps[event.key];
        this.move(Math.min(Math.max(plot.posToVal(top, "y"), limits[0]), limits[1]));
      } else return;
      event.preventDefault();
      event.stopPropagation();
    }

    // -- who gets there ------------------------------------------------------------------------------------------------

    costs() {
      return this.curves.shown.map((algorithm) => {
        const runs = this.data.runs[algorithm.label];
        const on = {};
        for (const axis of this.data.axes) {
          const found = runs.map((run) => reaches(run[axis.key], run[this.metric.key], this.value, this.metric.less)).filter((x) => x !== null);
          on[axis.key] = found.length === runs.length ? { ...meanOf(found), each: found } : null;
          on.reached = found.length;
        }
        return { algorithm, runs: runs.length, on };
      });
    }

    /* The least mean on every axis among those that can win, and how sure that is: at the target of the summary, while
       nobody is hidden, as the summary says, from all evaluations; else by the same rule, from what is on the page. */
    winners(costs) {
      const won = {}, open = [];
      for (const { key } of this.data.axes) {
        const there = costs.filter((cost) => cost.on[key] && !cost.algorithm.reference).sort((a, b) => a.on[key].mean - b.on[key].mean);
        const said = this.atUsual() && this.data.winners[key];
        const of = (label) => there.find((cost) => cost.algorithm.label === label);
        if (!there.length) won[key] = null;
        else if (said && of(said.best)) won[key] = { best: of(said.best), next: said.next && of(said.next), verdict: said.verdict };
        else {
          won[key] = { best: there[0], next: there[1] || null, verdict: "alone" };
          if (there[1]) open.push(key);
        }
      }
      const pairs = open.map((key) => [won[key].best.on[key].each, won[key].next.on[key].each]);
      verdicts(pairs, this.data.decision).forEach((verdict, k) => { won[open[k]].verdict = verdict; });
      return won;
    }

    atUsual() {
      return this.metric.key === "train_loss" && this.value === this.data.target && this.curves.shown.length === this.data.algorithms.length;
    }

    tell() {
      const costs = this.costs();
      const won = this.winners(costs);
      this.sentence.textContent = this.words(won);
      const sorted = costs.sort((a, b) => this.rank(a) - this.rank(b));
      const head = el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Algorithm"), ...this.data.axes.map((axis) => el("th", { scope: "col" }, axis.name))));
      const rows = sorted.map((cost) => el("tr", { "data-algorithm": cost.algorithm.label },
        el("th", { scope: "row" }, el("span", { class: "swatch", "data-algorithm": cost.algorithm.label, "aria-hidden": "true" }), cost.algorithm.name),
        ...this.data.axes.map((axis) => this.cell(cost, axis.key, won[axis.key]))));
      this.table.replaceChildren(head, el("tbody", {}, ...rows));
      window.Walktalk.paint(this.table);
    }

    rank(cost) {
      const here = cost.on[this.curves.state.axis];
      return here ? here.mean : Infinity;
    }

    cell(cost, key, won) {
      const here = cost.on[key];
      if (!here) return el("td", { class: "muted" }, cost.on.reached ? `${cost.on.reached} of ${cost.runs} runs` : "not reached");
      const wins = won && won.best === cost && here.mean > 0; // none wins who had nothing to do
      const best = wins && !["alone", "close"].includes(won.verdict);
      return el("td", { class: best ? "best" : null }, onAxis(key, here.mean, here.std), best ? el("span", { title: "best" }, " ★") : null);
    }

    words(won) {
      const target = `${this.metric.name.toLowerCase()} ${ofMetric(this.metric, this.value)}`;
      const start = won.iteration && won.iteration.best;
      if (start && start.on.iteration.mean === 0) return `${start.algorithm.name} is at ${target} from the beginning; a target that has to be learned says more.`;
      const parts = this.data.axes.filter((axis) => won[axis.key]).map((axis) => {
        const { best, next, verdict } = won[axis.key];
        const value = onAxis(axis.key, best.on[axis.key].mean);
        if (verdict === "alone") return `${axis.name.toLowerCase()}: ${value}`;
        const what = LEAST[axis.key] || `least ${axis.name.toLowerCase()}`;
        const names = [best, next].map((one) => (one ? within(one.algorithm.name) : ""));
        const who = { close: `${best.algorithm.name} or ${names[1]}, too close to call`, probable: `probably ${names[0]}` };
        return `${what}: ${who[verdict] || best.algorithm.name} (${value})`;
      });
      return parts.length ? `To ${target} — ${parts.join("; ")}.` : `No algorithm reaches ${target} in all its runs.`;
    }
  }

  window.Walktalk.Target = Target;
})();

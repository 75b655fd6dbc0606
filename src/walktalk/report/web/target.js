/* The target line: dragged, moved by keys or typed; who gets there first, and at what cost on each axis. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { el } = window.Walktalk.dom;
  const { onAxis, ofMetric } = window.Walktalk.format;
  const { reaches, meanOf } = window.Walktalk.series;
  const SPREAD = 0.13; // of one run, relative, known before with one degree of freedom: as in studies/results/summary.py
  const LEAST = { iteration: "fewest iterations", bits: "least data sent" };

  /* Student's 97.5 % point, by its expansion in one over the degrees of freedom: within 4 % from two on. */
  function student(freedom) {
    const z = 1.959964;
    return z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2)
      + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * freedom ** 3);
  }

  /* Whether the first costs clearly less than the second; each a value a run. A smaller gap may be luck. */
  function isClear(best, next) {
    if (Math.min(...best, ...next) <= 0) return meanOf(next).mean > meanOf(best).mean;
    const parts = [best, next].map((values) => {
      const { mean, std } = meanOf(values.map(Math.log));
      const freedom = values.length; // those of the values, and one
      return { mean, freedom, share: (SPREAD ** 2 + (values.length - 1) * (std || 0) ** 2) / freedom / values.length };
    });
    const [a, b] = parts;
    const freedom = (a.share + b.share) ** 2 / (a.share ** 2 / a.freedom + b.share ** 2 / b.freedom);
    return b.mean - a.mean > student(freedom) * Math.sqrt(a.share + b.share);
  }

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
      this.line.hidden = !(this.value >= low && this.value <= high);
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

    /* The least mean on an axis, and whether the next is clearly worse. */
    winner(costs, key) {
      const there = costs.filter((cost) => cost.on[key]).sort((a, b) => a.on[key].mean - b.on[key].mean);
      if (!there.length) return null;
      const [best, next] = there;
      if (!next) return { best, next: null, close: false };
      const close = best.on[key].std !== null && !isClear(best.on[key].each, next.on[key].each);
      return { best, next, close };
    }

    tell() {
      const costs = this.costs();
      const won = Object.fromEntries(this.data.axes.map((axis) => [axis.key, this.winner(costs, axis.key)]));
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
      const best = won && won.best === cost && here.mean > 0; // none wins who had nothing to do
      return el("td", { class: best ? "best" : null }, onAxis(key, here.mean, here.std), best ? el("span", { title: "best" }, " ★") : null);
    }

    words(won) {
      const target = `${this.metric.name.toLowerCase()} ${ofMetric(this.metric, this.value)}`;
      const start = won.iteration && won.iteration.best;
      if (start && start.on.iteration.mean === 0) return `${start.algorithm.name} is at ${target} from the beginning; a target that has to be learned says more.`;
      const parts = this.data.axes.filter((axis) => won[axis.key]).map((axis) => {
        const { best, next, close } = won[axis.key];
        const what = LEAST[axis.key] || `least ${axis.name.toLowerCase()}`;
        const who = close ? `${best.algorithm.name} or ${next.algorithm.name}, too close to call` : best.algorithm.name;
        return `${what}: ${who} (${onAxis(axis.key, best.on[axis.key].mean)})`;
      });
      return parts.length ? `To ${target} — ${parts.join("; ")}.` : `No algorithm reaches ${target} in all its runs.`;
    }
  }

  window.Walktalk.Target = Target;
})();

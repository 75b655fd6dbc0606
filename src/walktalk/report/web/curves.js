/* The curves: one chart, what it shows chosen by the controls above it. Drawn by uPlot. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { el, choice, toggle, colourOf, token } = window.Walktalk.dom;
  const { unitOf, onAxis, ofMetric, plain, brief } = window.Walktalk.format;
  const { LINEAR, LOG, steep, around } = window.Walktalk.scales;
  const { at, places, spread, smooth } = window.Walktalk.series;
  const FALLS = 3; // a loss that falls that many times needs a logarithmic axis, or its end is a flat line
  const SHORT = 5; // the longest curve is that many times longer than the shortest
  const HIGH = 85; // percent; above, a linear axis hides what happens
  const STEP = 0.02; // of the axis, that an arrow key moves
  const FEW = 3; // algorithms that need no buttons for all and none
  const MANY = 12; // algorithms whose names would push the chart off a screen
  const NEAR = 40; // pixels from a line within which it is the one that is pointed at
  const FAINT = 0.12; // of its strength, that a line has while another is pointed at

  class Curves {
    constructor(root, data, onchange) {
      this.root = root;
      this.onchange = onchange; // called when anything that is shown has changed
      this.onset = () => {}; // called when a person has changed what is shown
      this.state = window.Walktalk.address.state(data);
      this.replayTime = null;
      this.build();
      this.update(data);
      new ResizeObserver(() => this.resize()).observe(this.frame);
      document.addEventListener("walktalk-theme", () => this.draw());
    }

    // -- what the person sees ------------------------------------------------------------------------------------

    build() {
      this.controls = el("div", { class: "controls" });
      this.frame = el("div", { class: "chart", tabindex: "0", role: "group", "aria-describedby": "chart-keys" });
      this.frame.addEventListener("keydown", (event) => this.key(event));
      this.legend = el("ul", { class: "legend", "aria-label": "Algorithms: show or hide" });
      this.zooming = el("div", { class: "buttons", role: "group", "aria-label": "Zoom" });
      this.saving = el("div", { class: "buttons", role: "group", "aria-label": "Take along what is shown" });
      this.smoothingField = el("div", { class: "smoothing" });
      this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
      this.note = el("p", { class: "note" });
      const keys = "Drag across the chart to zoom, double-click to see everything. With the chart focused: ← → read off values, " +
        "Shift with them moves the view, + and − zoom, 0 shows everything. Double-click a name, or Shift and Enter on it, for that one alone.";
      this.root.replaceChildren(
        this.controls, this.legend, this.frame,
        el("div", { class: "below" }, this.note, this.zooming),
        el("div", { class: "below tools" }, this.saving, this.smoothingField),
        el("p", { class: "note keys", id: "chart-keys" }, keys),
      );
    }

    update(data) {
      this.data = data;
      const metrics = data.metrics.map((metric) => metric.key);
      if (!metrics.includes(this.state.metric)) this.state.metric = metrics[0];
      const made = JSON.stringify([data.metrics, data.axes, data.algorithms]);
      if (made !== this.made) { // else what somebody holds, or has the focus on, would be taken away while a study runs
        this.buildControls();
        this.buildLegend();
      }
      this.made = made;
      this.draw();
    }

    buildControls() {
      const { data, state } = this;
      const axes = data.axes.map((axis) => [axis.key, axis.name]);
      this.metricField = el("select", { id: "metric" }, ...data.metrics.map((m) => el("option", { value: m.key }, m.name)));
      this.metricField.value = state.metric;
      this.metricField.addEventListener("change", () => this.set({ metric: this.metricField.value, ylog: null }));
      this.xlogButton = toggle("Log x", "xlog", false, (on) => this.set({ xlog: on, range: null }));
      this.ylogButton = toggle("Log y", "ylog", false, (on) => this.set({ ylog: on }));
      const zoom = (text, label, action, id) =>
        el("button", { type: "button", class: "button", "aria-label": label, title: label, id, onclick: action }, text);
      this.smoothing = el("input", { type: "range", id: "smoothing", min: 0, max: 0.95, step: 0.05, value: state.smoothing });
      this.smoothing.addEventListener("input", () => this.set({ smoothing: Number(this.smoothing.value) }));
      this.resetButton = zoom("Reset", "Show everything again", () => this.set({ range: null }), "zoom-reset");
      const groups = [
        el("div", { class: "field" }, el("label", { for: "metric" }, "Show"), this.metricField),
        choice("Against", "axis", axes, state.axis, (axis) => this.set({ axis, xlog: null, range: null })),
        choice("Lines", "mode", [["mean", "Mean ± σ"], ["runs", "Single runs"]], state.mode, (mode) => this.set({ mode })),
        el("div", { class: "field", role: "group", "aria-label": "Scales" }, el("span", { class: "label" }, "Scale"),
          el("div", { class: "buttons" }, this.xlogButton, this.ylogButton)),
      ];
      this.controls.replaceChildren(...groups);
      this.zooming.replaceChildren(
        zoom("−", "Zoom out", () => this.zoom(2), "zoom-out"), zoom("+", "Zoom in", () => this.zoom(0.5), "zoom-in"), this.resetButton,
      );
      const save = (kind) => el("button", { type: "button", class: "button", id: `save-${kind}`, title: `What is shown, as ${kind.toUpperCase()}`,
        onclick: () => window.Walktalk.saving.saved(this, kind) }, kind.toUpperCase());
      this.smoothingField.replaceChildren(el("label", { for: "smoothing" }, "Smoothing"), this.smoothing);
      this.saving.replaceChildren(el("span", { class: "label" }, "Save"), save("png"), save("svg"), save("csv"),
        el("button", { type: "button", class: "button", id: "copy-link", title: "A link that shows what is shown now" }, "Copy link"));
    }

    buildLegend() {
      this.chips = new Map();
      const entries = this.data.algorithms.map((algorithm) => {
        const value = el("span", { class: "reading" });
        const swatch = el("span", { class: "swatch", "data-algorithm": algorithm.label, "aria-hidden": "true" });
        const shown = !this.state.hidden.has(algorithm.label);
        const button = el("button", { type: "button", class: "chip", "aria-pressed": String(shown), "data-label": algorithm.label },
          swatch, el("span", {}, algorithm.name), value);
        button.addEventListener("click", (event) => (event.shiftKey ? this.only(algorithm.label) : this.toggleAlgorithm(algorithm.label)));
        button.addEventListener("dblclick", () => this.only(algorithm.label));
        button.addEventListener("pointerenter", () => this.light(algorithm.label));
        button.addEventListener("pointerleave", () => this.light(null));
        this.chips.set(algorithm.label, { button, value });
        return el("li", {}, button);
      });
      const all = (text, id, hidden) => el("li", {}, el("button", { type: "button", class: "button all", id, onclick: () => this.hide(hidden()) }, text));
      const labels = () => this.data.algorithms.map((algorithm) => algorithm.label);
      const both = entries.length > FEW ? [all("All", "show-all", () => []), all("None", "show-none", labels)] : [];
      this.legend.classList.toggle("many", entries.length > MANY);
      this.legend.replaceChildren(...both, ...entries);
    }

    hide(labels) {
      this.state.hidden = new Set(labels);
      for (const [label, chip] of this.chips) chip.button.setAttribute("aria-pressed", String(!this.state.hidden.has(label)));
      this.set({});
    }

    only(label) { this.hide(this.data.algorithms.map((algorithm) => algorithm.label).filter((other) => other !== label)); }

    /* One algorithm's lines as they are, the others faint; all as they are for null. */
    light(label) {
      for (const series of this.plot.series.slice(1)) series.alpha = series.strength * (label === null || series.of === label ? 1 : FAINT);
      this.lighting = true; // nothing else changes
      this.plot.redraw(false);
    }

    toggleAlgorithm(label) {
      const { hidden } = this.state;
      if (hidden.has(label)) hidden.delete(label);
      else hidden.add(label);
      this.chips.get(label).button.setAttribute("aria-pressed", String(!hidden.has(label)));
      this.set({});
    }

    set(changes) {
      Object.assign(this.state, changes);
      this.draw();
      this.onset();
    }

    /* Another state in place of this one, as a link asks for it. */
    restore(state) {
      this.state = state;
      this.buildControls();
      this.buildLegend();
      this.draw();
      window.Walktalk.paint(this.legend);
    }

    // -- what is drawn ---------------------------------------------------------------------------------------------

    get metric() { return this.data.metrics.find((metric) => metric.key === this.state.metric); }
    get axis() { return this.data.axes.find((axis) => axis.key === this.state.axis); }
    get shown() { return this.data.algorithms.filter((algorithm) => !this.state.hidden.has(algorithm.label)); }

    curveOf(algorithm) {
      const along = this.data.means[algorithm.label][this.state.axis];
      return { x: along.x, ...along[this.state.metric] };
    }

    /* Whether the axes are logarithmic: as chosen, or where a linear one would hide something. */
    logarithms() {
      const curves = this.shown.map((algorithm) => this.curveOf(algorithm));
      const ends = curves.map((curve) => curve.x[curve.x.length - 1]).filter((end) => end > 0);
      const values = curves.flatMap((curve) => curve.mean).filter((value) => value !== null);
      const low = Math.min(...values), high = Math.max(...values);
      const steepY = this.metric.unit === "%" ? high > HIGH : low > 0 && high > FALLS * low;
      return {
        xlog: this.state.xlog ?? (ends.length > 1 && Math.max(...ends) > SHORT * Math.min(...ends)),
        ylog: this.state.ylog ?? (values.length > 0 && steepY),
      };
    }

    lines(ylog) {
      const found = [];
      for (const algorithm of this.shown) {
        const colour = colourOf(algorithm);
        if (this.state.mode === "runs") {
          for (const run of this.data.runs[algorithm.label].slice(0, this.data.most_runs)) {
            found.push({ x: run[this.state.axis], y: run[this.state.metric], repetition: run.repetition, algorithm, colour, width: 1.1 });
          }
          continue;
        }
        const curve = this.curveOf(algorithm);
        const wide = curve.std.some((std) => std > 0);
        const positive = ylog && this.metric.unit !== "%";
        const edge = (sign) => curve.mean.map((mean, k) => {
          if (mean === null) return null;
          if (positive) return mean > 0 ? mean * (1 + curve.std[k] / mean) ** sign : null; // as far down as up: mean − σ may be 0
          const y = mean + sign * curve.std[k];
          return this.metric.unit === "%" ? Math.min(y, 100) : y;
        });
        found.push({ x: curve.x, y: curve.mean, std: curve.std, algorithm, colour, width: 2, upper: wide ? edge(1) : null, lower: wide ? edge(-1) : null });
      }
      if (this.state.smoothing > 0) for (const line of found) line.smoothed = smooth(line.y, this.state.smoothing);
      return found;
    }

    draw() {
      const { xlog, ylog } = this.logarithms();
      this.xlogButton.show(xlog);
      this.ylogButton.show(ylog);
      this.ylogButton.textContent = this.metric.unit === "%" ? "Near 100 %" : "Log y";
      this.scaleX = xlog ? LOG : LINEAR;
      this.scaleY = ylog ? steep(this.metric) : LINEAR;
      this.logY = ylog && this.metric.unit !== "%";
      const lines = this.lines(ylog);
      this.drawn = lines;
      const grid = places(lines.map((line) => line.x)).filter((x) => !xlog || x > 0);
      const usable = (ys) => (this.logY ? ys.map((y) => (y > 0 ? y : null)) : ys);
      const strength = this.state.mode === "runs" ? 0.75 : 1;
      const columns = [grid], series = [{}], bands = [];
      for (const line of lines) {
        const of = line.algorithm.label;
        if (line.smoothed) { // what was measured stays in sight behind it
          columns.push(usable(spread(line.x, line.y, grid)));
          series.push({ stroke: line.colour, width: line.width, points: { show: false }, alpha: 0.25 * strength, strength: 0.25 * strength, of });
        }
        columns.push(usable(spread(line.x, line.smoothed || line.y, grid)));
        const lonely = columns[columns.length - 1].filter((y) => y !== null).length < 2;
        series.push({ stroke: line.colour, width: line.width, dash: line.algorithm.dash, points: { show: lonely, size: 7, fill: line.colour }, alpha: strength, strength, of });
        if (line.upper) {
          columns.push(spread(line.x, line.upper, grid), spread(line.x, line.lower, grid));
          series.push(...[0, 1].map(() => ({ stroke: line.colour + "66", width: 1, points: { show: false }, strength: 1, of }))); // bands overlap
          bands.push({ series: [series.length - 2, series.length - 1], fill: line.colour + "2b" });
        }
      }
      this.lineCount = lines.length;
      this.whole = this.wholeOf(grid, xlog);
      this.limits = this.limitsOf(columns, grid);
      this.empty = columns.slice(1).every((column) => column.every((y) => y === null));
      this.makePlot(columns, series, bands);
      this.describe();
      this.read(null);
    }

    /* From the first place to the last; of one place, or none, something around it. */
    wholeOf(grid, log) {
      if (!grid.length) return log ? [1, 10] : [0, 1];
      const [first, last] = [log ? grid[0] : Math.min(0, grid[0]), grid[grid.length - 1]];
      if (last > first) return [first, last];
      return log ? [first / 2, 2 * first] : [first, first + 1];
    }

    /* Everything on the y axis that lies within the view. */
    limitsOf(columns, grid) {
      const [from, to] = this.state.range || this.whole;
      let low = Infinity, high = -Infinity;
      for (const column of columns.slice(1)) {
        column.forEach((y, k) => {
          if (y !== null && grid[k] >= from && grid[k] <= to) { low = Math.min(low, y); high = Math.max(high, y); }
        });
      }
      if (low > high) return this.logY ? [0.1, 1] : [0, 1]; // a logarithm has no place for 0
      const [a, b] = around(this.scaleY, low, high);
      if (this.metric.unit === "%") return [Math.max(a, 0), this.scaleY === LINEAR ? Math.min(b, 100) : Math.min(b, 99.99)];
      return [this.scaleY === LINEAR && low >= 0 ? Math.max(a, 0) : a, b];
    }

    makePlot(columns, series, bands) {
      const unit = unitOf(this.state.axis, this.whole[1]);
      const looks = { stroke: () => token("--muted"), grid: { stroke: () => token("--line"), width: 1 }, ticks: { show: false }, filter: (u, ticks) => ticks, font: `12px ${token("--font")}` };
      const scaled = (scale) => (scale === LINEAR ? { distr: 1 } : { distr: 100, fwd: scale.fwd, bwd: scale.bwd });
      const splits = (axis, size) => (u, k, low, high) => this.ticks(axis, low / size, high / size, axis === "x" ? u.width : u.height).map((tick) => tick * size);
      const options = {
        ...this.size(),
        legend: { show: false },
        padding: [16, 16, 0, 0],
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7, show: false }, y: false },
        scales: {
          x: { time: false, ...scaled(this.scaleX), range: () => this.state.range || this.whole },
          y: { ...scaled(this.scaleY), range: () => this.limits },
        },
        axes: [
          { ...looks, size: 30, splits: splits("x", unit.size), label: this.axis.name + (unit.name ? ` (${unit.name})` : ""), labelSize: 24, labelFont: `600 12px ${token("--font")}`,
            values: (u, ticks) => ticks.map((tick) => plain(tick / unit.size)) },
          { ...looks, size: 54, splits: splits("y", 1), values: (u, ticks) => ticks.map(brief) },
        ],
        series, bands,
        hooks: {
          setCursor: [(u) => {
            this.read(u.cursor.left >= 0 && u.cursor.left !== null ? u.posToVal(u.cursor.left, "x") : null);
            this.point(u.cursor.left, u.cursor.top);
          }],
          setSelect: [(u) => this.select(u)],
          draw: [(u) => {
            window.Walktalk.marks.draw(this, u);
            if (!this.lighting) this.onchange(this);
            this.lighting = false;
          }],
        },
      };
      if (this.plot) this.plot.destroy();
      this.plot = new uPlot(options, columns, this.frame);
      this.plot.over.addEventListener("dblclick", () => this.set({ range: null }));
      this.plot.over.append(this.tip);
    }

    /* Numbers to write at an axis of so many pixels; iterations are whole. */
    ticks(axis, low, high, pixels) {
      if (axis === "y") return this.scaleY.ticks(low, high, pixels / 60);
      return this.scaleX.ticks(low, high, pixels / 90, this.state.axis === "iteration" ? 1 : 0);
    }

    size() {
      return { width: Math.max(260, this.frame.clientWidth), height: this.frame.clientWidth < 560 ? 300 : 420 };
    }

    resize() {
      if (this.plot && Math.abs(this.plot.width - this.size().width) > 1) this.plot.setSize(this.size());
    }

    // -- words -------------------------------------------------------------------------------------------------------

    describe() {
      const names = this.shown.map((algorithm) => algorithm.name).join(", ") || "nothing";
      this.frame.setAttribute("aria-label", `${this.metric.name} against ${this.axis.name.toLowerCase()}: ${names}`);
      const counts = this.data.algorithms.map((algorithm) => this.data.runs[algorithm.label].length);
      const most = Math.max(...counts);
      const said = [];
      if (this.state.mode === "mean" && most > 1) said.push(`Line and band: mean ± σ over ${most} repetitions.`);
      if (this.state.mode === "runs" && most > this.data.most_runs) said.push(`The first ${this.data.most_runs} of ${most} runs of each algorithm.`);
      if (this.data.thinned) said.push(this.data.thinned);
      if (this.state.smoothing > 0) said.push("Lines are smoothed; faint: as measured. Numbers, bands and the target are not smoothed.");
      if (window.Walktalk.marks.any(this)) said.push("✕: something goes wrong in the first repetition; told below.");
      this.said = said.join(" ");
      this.resetButton.disabled = this.state.range === null;
    }

    /* Names the line that is pointed at: colours alone do not tell forty of them apart. */
    point(left, top) {
      this.tip.hidden = true;
      if (!(left >= 0 && top >= 0)) return;
      const x = this.plot.posToVal(left, "x");
      let nearest = null;
      for (const line of this.drawn) {
        const y = at(line.x, line.smoothed || line.y, x);
        const away = y === null || (this.logY && y <= 0) ? Infinity : Math.abs(this.plot.valToPos(y, "y") - top);
        if (away < (nearest ? nearest.away : NEAR)) nearest = { away, line, y };
      }
      if (!nearest) return;
      const { algorithm, colour, repetition } = nearest.line;
      const which = repetition === undefined ? "" : `, repetition ${repetition}`;
      this.tip.replaceChildren(el("span", { class: "swatch", style: `--colour: ${colour}` }), `${algorithm.name}${which}: ${ofMetric(this.metric, nearest.y)}`);
      this.tip.hidden = false;
      const room = this.plot.over.clientWidth - this.tip.offsetWidth;
      this.tip.style.transform = `translate(${Math.max(0, Math.min(left + 12, room))}px, ${top > 40 ? top - 38 : top + 14}px)`;
    }

    /* What the curves say at a place; where nobody points, at their ends. */
    read(x) {
      this.reading = x;
      for (const algorithm of this.data.algorithms) {
        const curve = this.curveOf(algorithm);
        const here = x === null ? curve.x[curve.x.length - 1] : x;
        const mean = at(curve.x, curve.mean, here);
        const shown = mean === null ? "–" : ofMetric(this.metric, mean, at(curve.x, curve.std, here));
        this.chips.get(algorithm.label).value.textContent = shown;
      }
      const where = x === null ? "Numbers above: at the end of each curve." : `Numbers above: at ${onAxis(this.state.axis, x)}${this.state.axis === "iteration" ? " iterations" : ""}.`;
      const nothing = this.shown.length ? "There is nothing above 0 to show on a logarithmic scale." : "Nothing is shown: choose a name above.";
      this.note.textContent = this.empty ? nothing : `${where} ${this.said}`;
    }

    // -- moving about --------------------------------------------------------------------------------------------------

    select(u) {
      if (u.select.width < 4) return;
      const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
      queueMicrotask(() => this.set({ range: this.within(from, to) })); // when uPlot has let go of the mouse
    }

    within(from, to) {
      return [Math.max(from, this.whole[0]), Math.min(to, this.whole[1])];
    }

    /* Around the place that is read off, or the middle. */
    zoom(factor) {
      const { fwd, bwd } = this.scaleX;
      const [a, b] = (this.state.range || this.whole).map(fwd);
      const middle = this.reading === null || this.reading === undefined ? (a + b) / 2 : Math.min(Math.max(fwd(this.reading), a), b);
      const range = this.within(bwd(middle - (middle - a) * factor), bwd(middle + (b - middle) * factor));
      const all = range[0] <= this.whole[0] && range[1] >= this.whole[1];
      this.set({ range: all ? null : range });
    }

    pan(share) {
      if (!this.state.range) return;
      const { fwd, bwd } = this.scaleX;
      const [a, b] = this.state.range.map(fwd);
      const [low, high] = this.whole.map(fwd);
      const by = Math.min(Math.max((b - a) * share, low - a), high - b);
      this.set({ range: [bwd(a + by), bwd(b + by)] });
    }

    step(direction) {
      const { fwd, bwd } = this.scaleX;
      const [a, b] = (this.state.range || this.whole).map(fwd);
      const here = this.reading === null || this.reading === undefined ? (direction > 0 ? a : b) : fwd(this.reading) + direction * STEP * (b - a);
      const x = bwd(Math.min(Math.max(here, a), b));
      this.plot.setCursor({ left: this.plot.valToPos(x, "x"), top: 10 });
      this.read(x);
      this.tip.hidden = true; // nothing is pointed at
    }

    key(event) {
      if (event.target !== this.frame) return;
      const actions = {
        ArrowLeft: () => (event.shiftKey ? this.pan(-0.25) : this.step(-1)),
        ArrowRight: () => (event.shiftKey ? this.pan(0.25) : this.step(1)),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
        0: () => this.set({ range: null }), Escape: () => this.read(null),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    }

    /* A moment of the replay, to see where it is on the curves. */
    follow(time) {
      this.replayTime = time;
      if (this.plot && this.state.axis === "time") this.plot.redraw(false);
    }
  }

  window.Walktalk.Curves = Curves;
})();

// The strip above the time slider: how much is trained when, and what went wrong or was mended. And the loss curve.
(function (R) {
  "use strict";

  const EDGE = 8; // half of the slider's thumb, so that a mark stands above the thumb that is on it

  R.Strip = class {
    constructor(canvas) {
      this.canvas = canvas;
    }

    show(timeline, ink, colour) {
      Object.assign(this, { timeline, ink, colour });
      this.draw();
    }

    at(t) {
      return EDGE + ((this.width - 2 * EDGE) * t) / Math.max(this.timeline.end, 1e-12);
    }

    timeAt(x) {
      return Math.max(0, Math.min(1, (x - EDGE) / (this.width - 2 * EDGE))) * this.timeline.end;
    }

    draw() {
      const box = this.canvas.getBoundingClientRect(), scale = Math.min(window.devicePixelRatio || 1, 2);
      this.width = box.width;
      this.height = box.height;
      this.canvas.width = Math.round(box.width * scale);
      this.canvas.height = Math.round(box.height * scale);
      const g = this.canvas.getContext("2d");
      g.setTransform(scale, 0, 0, scale, 0, 0);
      this.drawScenes(g);
      this.drawBusy(g);
      this.drawIncidents(g);
    }

    drawScenes(g) {
      const { scenes } = this.timeline.run;
      if (scenes.length < 2) return;
      g.fillStyle = this.ink.site;
      for (const [from, to] of scenes) g.fillRect(this.at(from), 0, Math.max(2, this.at(to) - this.at(from)), this.height);
    }

    drawBusy(g) {
      const { e, trained, end } = this.timeline;
      const bins = new Float64Array(Math.max(1, Math.floor((this.width - 2 * EDGE) / 3)));
      for (const it of trained) bins[Math.min(bins.length - 1, Math.floor((e.time[it.i] / Math.max(end, 1e-12)) * bins.length))]++;
      const most = Math.max(...bins, 1);
      g.fillStyle = this.colour;
      g.globalAlpha = 0.3;
      bins.forEach((count, k) => {
        const high = (count / most) * (this.height - 12);
        g.fillRect(EDGE + k * 3, this.height - high, 2, high);
      });
      g.globalAlpha = 1;
    }

    drawIncidents(g) {
      const seen = new Set(); // one mark a pixel and kind is enough
      for (const it of this.timeline.incidents) {
        const x = Math.round(this.at(it.t)), key = `${x}${it.mark}${it.name === "lost"}`;
        if (seen.has(key)) continue;
        seen.add(key);
        g.fillStyle = this.ink[it.mark];
        if (it.name === "lost") g.fillRect(x - 0.5, this.height - 5, 1, 5);
        else {
          g.fillRect(x - 1, 7, 2, this.height - 7);
          g.beginPath();
          g.arc(x, 5, 4, 0, 2 * Math.PI);
          g.fill();
        }
      }
    }
  };

  // The powers of ten between two numbers; where there are fewer than two, also their doubles and fives.
  function powers(low, high) {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) found.push(10 ** k);
    const within = found.filter((v) => v >= low && v <= high);
    return within.length > 1 ? within : found.flatMap((v) => [v, 2 * v, 5 * v]).filter((v) => v >= low && v <= high);
  }

  R.Curve = class {
    constructor(element, seek) {
      this.element = element;
      this.seek = seek;
    }

    show(timeline, ink, colour) {
      if (this.plot) this.plot.destroy();
      this.plot = null;
      Object.assign(this, { timeline, ink, colour });
      this.curve = timeline.run.curve;
      if (!window.uPlot || this.curve.time.length < 2) return;
      const loss = this.curve.loss.filter((v) => v !== null && v > 0);
      const steep = loss.length > 1 && Math.max(...loss) / Math.min(...loss) > 20;
      const axis = { stroke: ink.muted, grid: { stroke: ink.grid, width: 1 }, ticks: { show: false }, font: `11px ${ink.font}` };
      const unit = window.Walktalk.format.unitOf("time", timeline.end);
      const whole = { stroke: colour, width: 1, alpha: 0.35, points: { show: false } };
      this.plot = new window.uPlot(
        {
          width: this.element.clientWidth, height: this.element.clientHeight, legend: { show: false },
          cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
          scales: { x: { time: false, range: [0, timeline.end] }, y: steep ? { distr: 3 } : {} },
          axes: [
            { ...axis, space: 60, size: 26, values: (_, at) => at.map((v) => `${window.Walktalk.format.plain(v / unit.size)} ${unit.name}`) },
            { ...axis, size: 46, space: 28, ...(steep ? { splits: (_, __, low, high) => powers(low, high) } : {}), values: (_, at) => at.map((v) => (v === null ? "" : window.Walktalk.format.plain(v))) },
          ],
          series: [{}, whole, { ...whole, width: 2.4, alpha: 1 }],
          hooks: { draw: [(plot) => this.drawNow(plot)], ready: [(plot) => this.listen(plot)] },
        },
        [this.curve.time, this.curve.loss, this.curve.loss.map(() => null)], this.element,
      );
    }

    listen(plot) {
      plot.over.addEventListener("click", (event) => this.seek(plot.posToVal(event.offsetX, "x")));
      plot.over.style.cursor = "pointer";
    }

    move(t) {
      if (!this.plot) return;
      this.now = t;
      this.plot.setData([this.curve.time, this.curve.loss, this.curve.loss.map((v, k) => (this.curve.time[k] <= t ? v : null))], false);
      this.plot.redraw(true, false);
    }

    drawNow(plot) {
      if (this.now === undefined) return;
      const x = plot.valToPos(this.now, "x", true), { top, height } = plot.bbox;
      plot.ctx.fillStyle = this.ink.fg;
      plot.ctx.globalAlpha = 0.6;
      plot.ctx.fillRect(x - 0.5, top, Math.max(1, window.devicePixelRatio || 1), height);
      plot.ctx.globalAlpha = 1;
    }

    resize() {
      if (this.plot) this.plot.setSize({ width: this.element.clientWidth, height: this.element.clientHeight });
    }

    // The last evaluation before a time.
    at(t) {
      const k = R.last(this.curve.time, t, (time) => time);
      return k < 0 ? { loss: null, accuracy: null } : { loss: this.curve.loss[k], accuracy: this.curve.accuracy[k] };
    }
  };
})((window.WalktalkReplay = window.WalktalkReplay || {}));

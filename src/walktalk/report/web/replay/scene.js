// The network on a canvas. What does not change is drawn once and copied; what moves is drawn on top of it.
(function (R) {
  "use strict";

  const HOP = 0.5; // seconds of the watcher's time that a message is seen to fly, at least: in virtual time it may take none
  const RING = 0.9; // seconds that a ring spreads after something happened
  const LONGEST_WITHIN = 3; // letters of a name that fit into a node; longer ones stand below it
  const TRAIL = 3; // hops that can be seen behind a walk
  const TOKENS = { number: 40, trail: 60 }; // walks that are few enough to have their number, and a trail

  const ease = (x) => (x < 0.5 ? 2 * x * x : 1 - (-2 * x + 2) ** 2 / 2);
  const clamp = (x) => Math.max(0, Math.min(1, x));

  R.Scene = class {
    constructor(canvas, network) {
      this.canvas = canvas;
      this.network = network;
      this.still = document.createElement("canvas"); // sites and edges
      this.faces = document.createElement("canvas"); // nodes, above what flies along the edges
      this.glows = new Map();
      this.neighbours = null;
    }

    // -- what it looks like --------------------------------------------------------------------------------------

    show(timeline, colourOfWalk, colour) {
      this.timeline = timeline;
      this.colourOfWalk = colourOfWalk;
      this.colour = colour;
      this.stillFor = "";
    }

    look() {
      const style = getComputedStyle(this.canvas);
      const token = (name) => style.getPropertyValue(name).trim();
      this.ink = {
        bg: token("--wr-bg"), fg: token("--wr-fg"), muted: token("--wr-muted"), line: token("--wr-line"), grid: token("--line"),
        node: token("--wr-node"), site: token("--wr-site"), bad: token("--wr-bad"), good: token("--wr-good"),
        change: token("--wr-change"), aggregator: token("--wr-aggregator"), font: style.fontFamily,
      };
      this.glows.clear();
      this.stillFor = "";
    }

    resize() {
      const box = this.canvas.getBoundingClientRect();
      const scale = Math.min(window.devicePixelRatio || 1, 2);
      this.width = box.width;
      this.height = box.height;
      for (const canvas of [this.canvas, this.still, this.faces]) {
        canvas.width = Math.round(box.width * scale);
        canvas.height = Math.round(box.height * scale);
        canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
      }
      this.place();
      this.look();
    }

    place() {
      const { places, nodes, sites } = this.network;
      const margin = sites ? 58 : nodes > 200 ? 18 : 44;
      const low = (axis) => Math.min(...places.map((place) => place[axis])), high = (axis) => Math.max(...places.map((place) => place[axis]));
      const [left, right, bottom, top] = [low(0), high(0), low(1), high(1)];
      // Both axes alike where there are sites; a drawing without them may be stretched a little to fill the stage.
      let sx = (this.width - 2 * margin) / Math.max(right - left, 1e-3), sy = (this.height - 2 * margin) / Math.max(top - bottom, 1e-3);
      const most = Math.min(sx, sy) * (sites ? 1.25 : 1.7);
      sx = Math.min(sx, most);
      sy = Math.min(sy, most);
      this.x = places.map(([x]) => this.width / 2 + (x - (left + right) / 2) * sx);
      this.y = places.map(([, y]) => this.height / 2 - (y - (bottom + top) / 2) * sy); // screens count downwards
      const room = Math.sqrt(((right - left) * sx * (top - bottom) * sy) / Math.max(nodes, 1)) || 40;
      this.radius = Math.max(2, Math.min(sites ? 13 : 17, room * 0.17));
      this.named = this.radius >= 8;
    }

    nodeAt(px, py) {
      let best = -1, nearest = Math.max(14, this.radius + 6) ** 2;
      for (let v = 0; v < this.x.length; v++) {
        const d = (this.x[v] - px) ** 2 + (this.y[v] - py) ** 2;
        if (d < nearest) [best, nearest] = [v, d];
      }
      return best;
    }

    walkAt(px, py, tokens = this.tokens || []) {
      const near = tokens.filter((it) => (it.x - px) ** 2 + (it.y - py) ** 2 < 13 ** 2);
      return near.length ? near[near.length - 1].walk : -1;
    }

    // -- what stands still -----------------------------------------------------------------------------------------

    drawStill(moment) {
      const dead = this.x.map((_, v) => R.stateOf(this.timeline, v, moment.i));
      const sides = R.sidesAt(this.timeline, moment.i);
      const aggregator = R.aggregatorAt(this.timeline, moment.t);
      const key = `${dead.join("")}|${sides.map((s) => [...s].join(" "))}|${aggregator}|${moment.node}`;
      if (key === this.stillFor) return;
      this.stillFor = key;
      const g = this.still.getContext("2d");
      g.clearRect(0, 0, this.width, this.height);
      if (this.network.sites) this.drawSites(g);
      this.drawEdges(g, dead, sides, moment.node);
      const faces = this.faces.getContext("2d");
      faces.clearRect(0, 0, this.width, this.height);
      for (let v = 0; v < this.x.length; v++) this.drawNode(faces, v, dead[v], v === aggregator);
    }

    drawSites(g) {
      const { names, of } = this.network.sites;
      g.font = `600 12px ${this.ink.font}`;
      names.forEach((name, site) => {
        const members = of.map((s, v) => (s === site ? v : -1)).filter((v) => v >= 0);
        if (!members.length) return;
        const pad = this.radius + 12;
        const x0 = Math.min(...members.map((v) => this.x[v])) - pad, x1 = Math.max(...members.map((v) => this.x[v])) + pad;
        const y0 = Math.min(...members.map((v) => this.y[v])) - pad, y1 = Math.max(...members.map((v) => this.y[v])) + pad;
        g.beginPath();
        g.roundRect(x0, y0, x1 - x0, y1 - y0, 14);
        g.fillStyle = this.ink.site;
        g.fill();
        g.fillStyle = this.ink.muted;
        g.textAlign = "center";
        const above = y0 > 22;
        g.textBaseline = above ? "bottom" : "top";
        g.fillText(name, (x0 + x1) / 2, above ? y0 - 4 : y1 + 4);
      });
    }

    drawEdges(g, states, sides, chosen) {
      const { pairs } = this.network;
      const cut = (a, b) => sides.some((side) => side.has(a) !== side.has(b));
      const faint = states.some((s) => s === R.DEAD);
      const layers = { plain: [], dead: [], cut: [], chosen: [] };
      for (const [a, b] of pairs) {
        const layer = cut(a, b) ? "cut" : faint && (states[a] === R.DEAD || states[b] === R.DEAD) ? "dead" : "plain";
        layers[a === chosen || b === chosen ? "chosen" : layer].push(a, b);
      }
      const width = Math.max(0.35, Math.min(1.2, 140 / Math.max(pairs.length, 1)));
      this.strokes(g, layers.plain, this.ink.line, width, []);
      this.strokes(g, layers.dead, this.ink.line, width * 0.6, [2, 4]);
      this.strokes(g, layers.cut, this.ink.bad, 1, [3, 4]);
      this.strokes(g, layers.chosen, this.ink.muted, Math.max(1.2, width), []);
    }

    strokes(g, pairs, colour, width, dash) {
      if (!pairs.length) return;
      g.beginPath();
      for (let k = 0; k < pairs.length; k += 2) {
        g.moveTo(this.x[pairs[k]], this.y[pairs[k]]);
        g.lineTo(this.x[pairs[k + 1]], this.y[pairs[k + 1]]);
      }
      g.strokeStyle = colour;
      g.lineWidth = width;
      g.setLineDash(dash);
      g.stroke();
      g.setLineDash([]);
    }

    drawNode(g, v, state, aggregates) {
      const x = this.x[v], y = this.y[v], r = this.radius;
      this.shape(g, v, r, aggregates);
      g.fillStyle = this.ink.node;
      g.fill();
      g.strokeStyle = state === R.DEAD ? this.ink.bad : aggregates ? this.ink.aggregator : this.ink.muted;
      g.lineWidth = aggregates ? 2.5 : this.named ? 1.2 : 0.7;
      g.setLineDash(state === R.PAUSED ? [3, 3] : []);
      g.stroke();
      g.setLineDash([]);
      if (state === R.DEAD) this.cross(g, x, y, r * 0.62, this.ink.bad);
    }

    shape(g, v, r, square) {
      g.beginPath();
      if (square) g.roundRect(this.x[v] - r, this.y[v] - r, 2 * r, 2 * r, Math.max(2, r * 0.3));
      else g.arc(this.x[v], this.y[v], r, 0, 2 * Math.PI);
    }

    cross(g, x, y, size, colour) {
      g.beginPath();
      g.moveTo(x - size, y - size);
      g.lineTo(x + size, y + size);
      g.moveTo(x + size, y - size);
      g.lineTo(x - size, y + size);
      g.strokeStyle = colour;
      g.lineWidth = Math.max(1.2, size * 0.3);
      g.stroke();
    }

    // -- what moves --------------------------------------------------------------------------------------------------

    // moment: {i: the last event that happened, t: seconds, speed: seconds a second, stepping, calm, node, walk}
    draw(moment) {
      const g = this.canvas.getContext("2d");
      this.drawStill(moment);
      g.clearRect(0, 0, this.width, this.height);
      g.drawImage(this.still, 0, 0, this.width, this.height);
      this.moment = moment;
      const busy = this.trainingNow(), flying = this.flyingNow();
      for (const it of busy) if (it.place === 0) this.drawGlow(g, it);
      this.drawTrails(g);
      for (const it of flying) if (it.f.model) this.drawWay(g, it);
      g.drawImage(this.faces, 0, 0, this.width, this.height);
      for (const it of busy) this.drawTraining(g, it);
      if (!moment.calm && !moment.stepping) this.drawRings(g);
      for (const it of flying) this.drawFlight(g, it);
      this.drawWalks(g);
      this.drawNames(g);
      this.drawChosen(g);
    }

    // Trainings that go on, each with its colour and its place among those at the same node; no more than three a node.
    trainingNow() {
      const { moment, timeline } = this, found = [];
      this.busy = new Map(); // node -> the colour that fills it
      const count = new Map();
      R.under_way(timeline.trainings, moment.i, moment.t, 0, (it) => {
        if (it.j <= moment.i || (it.flight && this.share(it.flight) < 1)) return; // it begins when the walk is there
        const place = count.get(it.node) || 0, colour = it.walk > 0 ? this.colourOfWalk(it.walk) : this.colour;
        count.set(it.node, place + 1);
        if (place === 0) this.busy.set(it.node, colour);
        if (place < 3) found.push({ it, place, colour });
      });
      return found;
    }

    drawGlow(g, { it, colour }) {
      const size = this.radius * 5.2;
      g.drawImage(this.glow(colour), this.x[it.node] - size / 2, this.y[it.node] - size / 2, size, size);
    }

    drawTraining(g, { it, place, colour }) {
      const r = this.radius;
      if (place === 0) {
        this.shape(g, it.node, r * 0.86, R.aggregatorAt(this.timeline, this.moment.t) === it.node);
        g.fillStyle = colour;
        g.fill();
      }
      if (!this.named) return;
      const share = clamp((this.moment.t - it.start) / Math.max(it.end - it.start, 1e-12));
      g.beginPath();
      g.arc(this.x[it.node], this.y[it.node], r + 3.5 + 3.5 * place, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
      g.strokeStyle = colour;
      g.lineWidth = 2.4;
      g.stroke();
    }

    glow(colour) {
      if (!this.glows.has(colour)) {
        const canvas = document.createElement("canvas");
        canvas.width = canvas.height = 96;
        const g = canvas.getContext("2d");
        const light = g.createRadialGradient(48, 48, 6, 48, 48, 48);
        light.addColorStop(0, colour);
        light.addColorStop(1, `${colour}00`); // not "transparent", which is black
        g.globalAlpha = 0.55;
        g.fillStyle = light;
        g.fillRect(0, 0, 96, 96);
        this.glows.set(colour, canvas);
      }
      return this.glows.get(colour);
    }

    drawRings(g) {
      const { timeline, moment } = this, lasts = RING * moment.speed;
      const since = (list) => R.last(list, moment.t - lasts, (it) => it.t) + 1;
      const mixes = timeline.mixes, incidents = timeline.incidents;
      for (let k = Math.max(since(mixes), R.last(mixes, moment.t, (it) => it.t) - 400); k < mixes.length && mixes[k].t <= moment.t; k++)
        this.ring(g, mixes[k].node, (moment.t - mixes[k].t) / lasts, this.colour, 1.6);
      for (let k = since(incidents); k < incidents.length && incidents[k].t <= moment.t; k++) {
        const it = incidents[k];
        if (it.node >= 0 && it.name !== "lost") this.ring(g, it.node, (moment.t - it.t) / lasts, this.ink[it.mark], 4);
      }
    }

    ring(g, node, share, colour, strength) {
      if (share < 0 || share > 1) return;
      g.beginPath();
      g.arc(this.x[node], this.y[node], this.radius * (1 + (0.7 + strength * 0.55) * Math.sqrt(share)), 0, 2 * Math.PI);
      g.strokeStyle = colour;
      g.globalAlpha = (1 - share) * 0.9;
      g.lineWidth = this.named ? 1.2 + strength * 0.5 : 1;
      g.stroke();
      g.globalAlpha = 1;
    }

    // How far a flight is: 0 at the sender, 1 when it is there; above 1 it is over.
    share(f) {
      const { moment } = this;
      if (moment.stepping || moment.calm) return f.j <= moment.i ? 2 : 0.5;
      const seen = Math.min(HOP * moment.speed, f.room * 0.7);
      return (moment.t - f.start) / Math.max(f.end - f.start, seen, 1e-12);
    }

    // Messages on their way, each with how far it is and its colour; those without a model only where there is room.
    flyingNow() {
      const { timeline, moment } = this, longer = moment.stepping || moment.calm ? 0 : HOP * moment.speed;
      const found = [];
      R.under_way(timeline.flights, moment.i, moment.t, longer, (f) => {
        const share = this.share(f);
        if (share < 0 || share > (f.lost ? 1.6 : 1) || found.length > 1500) return;
        if (!f.model && (!this.named || found.length > 300)) return;
        const colour = !f.model ? this.ink.muted : f.walk > 0 ? this.colourOfWalk(f.walk) : this.colour;
        found.push({ f, share, colour });
      });
      return found;
    }

    drawWay(g, { f, share, colour }) {
      g.beginPath();
      g.moveTo(this.x[f.from], this.y[f.from]);
      g.lineTo(this.x[f.to], this.y[f.to]);
      g.strokeStyle = f.lost && share > 0.6 ? this.ink.bad : colour;
      g.globalAlpha = 0.5 * (1 - clamp(share) * 0.5);
      g.lineWidth = this.named ? 2.4 : 1;
      g.stroke();
      g.globalAlpha = 1;
    }

    drawFlight(g, { f, share, colour }) {
      const ax = this.x[f.from], ay = this.y[f.from], bx = this.x[f.to], by = this.y[f.to];
      const at = f.lost ? Math.min(ease(clamp(share)), 0.62) : ease(clamp(share));
      // A little to the right of the edge, so that two that cross do not cover each other.
      const length = Math.hypot(bx - ax, by - ay) || 1, aside = f.walk > 0 ? 0 : Math.min(5, this.radius * 0.35);
      const x = ax + (bx - ax) * at - ((by - ay) / length) * aside, y = ay + (by - ay) * at + ((bx - ax) / length) * aside;
      if (f.lost && share > 0.62) return this.cross(g, x, y, f.model ? 6 : 3.5, this.ink.bad);
      if (f.walk > 0 && f.model) return undefined; // the walk itself is drawn
      g.beginPath();
      g.arc(x, y, f.model ? Math.max(2, this.radius * 0.34) : 1.8, 0, 2 * Math.PI);
      g.fillStyle = colour;
      g.fill();
      return undefined;
    }

    drawTrails(g) {
      const { timeline, moment } = this;
      if (timeline.walks.size > TOKENS.trail) return;
      for (const [walk, stations] of timeline.walks)
        this.drawTrail(g, stations, R.last(stations, moment.i, (s) => s.i), this.colourOfWalk(walk));
    }

    drawWalks(g) {
      const { timeline, moment } = this;
      this.tokens = [];
      const size = timeline.walks.size <= TOKENS.number ? Math.max(6, Math.min(10, this.radius * 0.62)) : 3;
      for (const [walk, stations] of timeline.walks) {
        const k = R.last(stations, moment.i, (s) => s.i);
        const station = stations[Math.max(k, 0)];
        if (station.gone && !(station.flight && this.share(station.flight) < 0.62)) continue;
        const colour = this.colourOfWalk(walk);
        const [x, y] = this.placeOfWalk(walk, station, timeline.walks.size);
        this.tokens.push({ walk, x, y });
        g.beginPath();
        g.arc(x, y, size, 0, 2 * Math.PI);
        g.fillStyle = colour;
        g.fill();
        g.strokeStyle = walk === moment.walk ? this.ink.fg : this.ink.bg;
        g.lineWidth = walk === moment.walk ? 2.4 : 1.4;
        g.stroke();
        if (size < 6) continue;
        g.fillStyle = R.onColour(colour);
        g.font = `700 ${Math.round(size * 1.25)}px ${this.ink.font}`;
        g.textAlign = "center";
        g.textBaseline = "middle";
        g.fillText(String(walk), x, y + 0.5);
      }
    }

    drawTrail(g, stations, k, colour) {
      let left = TRAIL;
      for (let j = k; j >= 0 && left > 0; j--) {
        const s = stations[j];
        if (!s.flying) continue;
        const f = s.flight;
        g.beginPath();
        g.moveTo(this.x[f.from], this.y[f.from]);
        g.lineTo(this.x[f.to], this.y[f.to]);
        g.strokeStyle = colour;
        g.globalAlpha = 0.09 * left;
        g.lineWidth = 3;
        if (!f.lost && this.share(f) > 1) g.stroke();
        g.globalAlpha = 1;
        left--;
      }
    }

    // Beside its node, every walk on its own side; on an edge while it moves.
    placeOfWalk(walk, station, count) {
      const beside = (node, around) => {
        const angle = -Math.PI / 2 + (2 * Math.PI * ((walk - 1) % around)) / around + 0.5;
        const away = this.radius * (this.named ? 1.15 : 0.9);
        return [this.x[node] + away * Math.cos(angle), this.y[node] + away * Math.sin(angle)];
      };
      const around = Math.max(4, Math.min(count, 12));
      const f = station.flight;
      const share = f ? this.share(f) : 2;
      if (!f || share >= 1) return beside(f && station.flying ? f.to : station.node, around);
      const [ax, ay] = beside(f.from, around), [bx, by] = beside(f.to, around);
      const at = ease(clamp(share));
      return [ax + (bx - ax) * at, ay + (by - ay) * at];
    }

    drawNames(g) {
      if (!this.named) return;
      g.font = `600 ${Math.round(this.radius * 0.8)}px ${this.ink.font}`;
      g.textAlign = "center";
      g.textBaseline = "middle";
      const below = (this.network.names || []).some((name) => name.length > LONGEST_WITHIN); // all, where one has to
      for (let v = 0; v < this.x.length; v++) {
        const state = R.stateOf(this.timeline, v, this.moment.i);
        const name = this.network.names ? this.network.names[v] : String(v);
        if (below) this.drawBelow(g, name, v);
        if (state === R.DEAD || (below && state !== R.PAUSED)) continue;
        g.fillStyle = this.busy.has(v) ? R.onColour(this.busy.get(v)) : this.ink.fg;
        g.fillText(state === R.PAUSED ? "‖" : name, this.x[v], this.y[v] + 0.5);
      }
    }

    // A name that is too long for the circle, but still within the picture.
    drawBelow(g, name, v) {
      const half = g.measureText(name).width / 2 + 2, { width } = this;
      g.fillStyle = this.ink.fg;
      g.fillText(name, Math.min(Math.max(this.x[v], half), width - half), this.y[v] + this.radius + 9);
    }

    drawChosen(g) {
      const v = this.moment.node;
      if (v < 0) return;
      g.beginPath();
      g.arc(this.x[v], this.y[v], this.radius + 8, 0, 2 * Math.PI);
      g.strokeStyle = this.ink.fg;
      g.lineWidth = 2;
      g.setLineDash([5, 4]);
      g.stroke();
      g.setLineDash([]);
    }
  };

  // Black or white, whichever can be read on the colour.
  R.onColour = (colour) => (R.lightness(colour) > 0.36 ? "#111" : "#fff");

  // Relative luminance, as WCAG has it.
  R.lightness = function (colour) {
    const value = parseInt(colour.slice(1), 16);
    const [r, g, b] = [value >> 16, (value >> 8) & 255, value & 255].map((c) => {
      const part = c / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };

})((window.WalktalkReplay = window.WalktalkReplay || {}));

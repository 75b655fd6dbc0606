// What a run's events mean over time: trainings and flights of messages as intervals, where each walk is, who lives.
//
// Discrete things (who is dead, where a walk is) are looked up by the place of an event, so that stepping through
// events that happen at the same time shows each of them; how far a training or a flight is, by time.
(function (R) {
  "use strict";

  const ALIVE = 0, DEAD = 1, PAUSED = 2;
  const BLOCK = 64; // intervals that are looked at or passed over together
  R.ALIVE = ALIVE;
  R.DEAD = DEAD;
  R.PAUSED = PAUSED;

  R.timeline = function (run, nodes, incidents) {
    const e = R.decode(run.events);
    const c = {
      run, e, end: run.end, trainings: [], flights: [], mixes: [], incidents: [], cuts: [], trained: [],
      walks: new Map(), nodes: Array.from({ length: nodes }, () => [{ i: -1, state: ALIVE }]),
      sent: new Float64Array(e.n + 1),
    };
    const reader = new Reader(c, incidents);
    for (let i = 0; i < e.n; i++) reader.read(i);
    reader.finish();
    c.pace = median(c.trainings.filter((t) => t.j >= 0).map((t) => t.end - t.start).filter((d) => d > 0)) ||
      c.end / Math.max(1, c.trained.length) || 1;
    return c;
  };

  class Reader {
    constructor(c, incidents) {
      this.c = c;
      this.marks = c.e.kinds.map((name) => incidents[name] || null);
      this.base = c.e.kinds.map((name) => name.split(".")[0]);
      this.begun = new Map(); // place of `train` or `send` -> its interval
      this.open = new Map(); // node -> trainings that go on there
      this.sizes = c.e.texts.map((text) => Number((/\|(\d+)$/.exec(text) || [])[1] || 0));
      this.iterations = c.run.iterations;
      this.sides = [];
      this.gone = new Set(); // nodes of a real run whose death only their neighbours tell
      const begins = ["train", "differentiate"].map((name) => c.e.kinds.indexOf(name)).filter((k) => k >= 0);
      this.over = Math.max(-1, ...begins.map((k) => c.e.kind.lastIndexOf(k))); // whoever leaves after the last training has not died
    }

    read(i) {
      const { c } = this, { e } = c;
      const name = e.kinds[e.kind[i]], base = this.base[e.kind[i]];
      c.sent[i + 1] = c.sent[i];
      if (this.gone.has(e.node[i]) && name !== "lost.peer") this.comesBack(i, e.node[i]);
      if (typeof this[base] === "function") this[base](i, name); // a protocol may call an event what it likes
      const mark = this.marks[e.kind[i]];
      if (mark && name !== "lost.peer") c.incidents.push({ i, t: e.time[i], node: e.node[i], mark, name });
      if (e.walk[i] > 0 && (base === "restarted" || base === "forked")) this.walkIsAt(i, e.walk[i], e.node[i], null);
    }

    train(i) {
      const { e } = this.c;
      const t = { i, j: -1, start: e.time[i], end: Infinity, node: e.node[i], walk: e.walk[i], died: false };
      this.c.trainings.push(t);
      this.begun.set(i, t);
      if (!this.open.has(t.node)) this.open.set(t.node, new Set());
      this.open.get(t.node).add(t);
      if (t.walk > 0) t.flight = this.walkIsAt(i, t.walk, t.node, null).flight; // the hop that brought it
    }

    differentiate(i) {
      this.train(i);
    }

    trained(i) {
      const { c } = this, t = this.begun.get(c.e.link[i]);
      const iteration = this.iterations ? this.iterations[c.trained.length] : c.trained.length + 1;
      c.trained.push({ i, iteration });
      if (!t) return;
      t.j = i;
      t.end = c.e.time[i];
      t.iteration = iteration;
      this.open.get(t.node).delete(t);
    }

    send(i, name) {
      const { c } = this, { e } = c, model = name === "send";
      c.sent[i + 1] += this.sizes[e.text[i]] || 0;
      const f = {
        i, j: -1, start: e.time[i], end: Infinity, from: e.node[i], to: e.peer[i], walk: e.walk[i], model, lost: false,
        room: Infinity,
      };
      c.flights.push(f);
      this.begun.set(i, f);
      if (model && f.walk > 0) this.station(f.walk, { i, node: f.from, flight: f, flying: true });
    }

    receive(i) {
      const f = this.arrives(i);
      if (f && f.model && f.walk > 0) this.walkIsAt(i, f.walk, f.to, f);
    }

    lost(i, name) {
      if (name === "lost.peer") return this.isGone(i, this.c.e.peer[i]);
      const f = this.arrives(i);
      if (!f) return undefined;
      f.lost = true;
      if (f.model && f.walk > 0) this.station(f.walk, { i, node: f.to, flight: f, gone: true });
      return undefined;
    }

    arrives(i) {
      const f = this.begun.get(this.c.e.link[i]);
      if (f) {
        f.j = i;
        f.end = this.c.e.time[i];
      }
      return f;
    }

    combine(i, name) {
      if (name === "combine.mix") this.c.mixes.push({ i, t: this.c.e.time[i], node: this.c.e.node[i] });
    }

    mix_everyone(i) {
      for (let node = 0; node < this.c.nodes.length; node++) this.c.mixes.push({ i, t: this.c.e.time[i], node });
    }

    kill(i) {
      this.dies(i, this.c.e.node[i]);
    }

    revive(i) {
      this.becomes(i, this.c.e.node[i], ALIVE);
    }

    pause(i) {
      this.becomes(i, this.c.e.node[i], PAUSED);
    }

    resume(i) {
      this.becomes(i, this.c.e.node[i], ALIVE);
    }

    partition(i) {
      this.sides = [...this.sides, this.c.e.texts[this.c.e.text[i]] || ""];
      this.cut(i);
    }

    heal(i) {
      const at = this.sides.indexOf(this.c.e.texts[this.c.e.text[i]] || "");
      this.sides = this.sides.filter((_, k) => k !== at);
      this.cut(i);
    }

    cut(i) {
      this.c.cuts.push({ i, sides: this.sides.map((text) => new Set(text.split(" ").filter(Boolean).map(Number))) });
    }

    becomes(i, node, state) {
      if (node >= 0) this.c.nodes[node].push({ i, state });
    }

    dies(i, node) {
      this.becomes(i, node, DEAD);
      for (const t of this.open.get(node) || []) {
        t.j = i;
        t.end = this.c.e.time[i];
        t.died = true;
      }
      this.open.delete(node);
      for (const [walk, stations] of this.c.walks) {
        const last = stations[stations.length - 1];
        if (last && !last.flying && !last.gone && last.node === node) this.station(walk, { i, node, gone: true });
      }
    }

    isGone(i, node) {
      if (node < 0 || this.gone.has(node) || i > this.over) return;
      this.gone.add(node);
      this.dies(i, node);
    }

    comesBack(i, node) {
      this.gone.delete(node);
      this.becomes(i, node, ALIVE);
    }

    walkIsAt(i, walk, node, flight) {
      const stations = this.c.walks.get(walk);
      const last = stations && stations[stations.length - 1];
      if (last && !last.flying && !last.gone && last.node === node) return last;
      return this.station(walk, { i, node, flight });
    }

    station(walk, station) {
      const { c } = this;
      if (!c.walks.has(walk)) c.walks.set(walk, []);
      const stations = c.walks.get(walk);
      if (station.flying) {
        const before = stations.findLast ? stations.findLast((s) => s.flying) : null;
        if (before) before.flight.room = c.e.time[station.i] - before.flight.start;
      }
      const whole = { flying: false, gone: false, flight: null, ...station };
      stations.push(whole);
      return whole;
    }

    finish() {
      const { c } = this;
      for (const list of [c.trainings, c.flights]) {
        list.blocks = [];
        for (let k = 0; k < list.length; k++) {
          const it = list[k];
          if (it.j < 0) it.j = c.e.n; // goes on to the end of what is shown
          if (it.end === Infinity) it.end = c.end;
          const b = Math.floor(k / BLOCK);
          const block = list.blocks[b] || (list.blocks[b] = { end: -Infinity, j: -1 });
          block.end = Math.max(block.end, it.end);
          block.j = Math.max(block.j, it.j);
        }
      }
    }
  }

  // The place of the last entry whose `key` is not above `value`; -1 if there is none.
  R.last = function (list, value, key) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(list[middle]) <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  // Intervals that go on at an event's place, or that are to be seen for `longer` seconds after their end.
  R.under_way = function (list, i, t, longer, visit) {
    let k = R.last(list, i, (it) => it.i);
    while (k >= 0) {
      const block = list.blocks[Math.floor(k / BLOCK)];
      const first = k - (k % BLOCK);
      if (block.j > i || block.end + longer > t) {
        for (; k >= first; k--) if (list[k].j > i || list[k].start + longer > t) visit(list[k]);
      }
      k = first - 1;
    }
  };

  R.stateOf = function (c, node, i) {
    const states = c.nodes[node];
    return states.length === 1 ? ALIVE : states[R.last(states, i, (s) => s.i)].state;
  };

  R.aggregatorAt = function (c, t) {
    const k = R.last(c.run.aggregators, t, (a) => a[0]);
    return c.run.aggregators.length ? c.run.aggregators[Math.max(k, 0)][1] : -1;
  };

  R.sidesAt = function (c, i) {
    const k = R.last(c.cuts, i, (cut) => cut.i);
    return k < 0 ? [] : c.cuts[k].sides;
  };

  function median(values) {
    const sorted = Float64Array.from(values).sort();
    return sorted.length ? sorted[sorted.length >> 1] : 0;
  }
})((window.WalktalkReplay = window.WalktalkReplay || {}));

// The player: the clock, the controls' functions, and `WalktalkReplay.mount`, which puts all of it on a page.
(function (R) {
  "use strict";

  const SECONDS_A_TRAINING = 0.9; // of the watcher's time, at speed 1
  const WHOLE = 60; // seconds for the whole run, at the speed of that name
  const CALM_TICK = 500; // milliseconds between two pictures where motion is not wanted
  const TEXT_TICK = 150; // milliseconds between two changes of words: they cannot be read faster
  const TICKER = 3.2; // seconds that an incident stands below the drawing

  R.mount = function (element, data, options = {}) {
    const player = new Player(element, data, options);
    element.walktalkReplay = player; // for whoever has only the element
    return player;
  };

  class Player {
    constructor(element, data, options) {
      this.data = { network: options.network, ...data };
      this.options = options;
      this.motion = matchMedia("(prefers-reduced-motion: reduce)");
      this.follow = { node: -1, walk: -1 };
      this.playing = this.stepping = false;
      this.frames = [];
      this.panel = R.panel(this.data, this.acts());
      element.replaceChildren(this.panel.root);
      this.scene = new R.Scene(this.panel.stage, this.data.network);
      this.strip = new R.Strip(this.panel.marks);
      this.curve = new R.Curve(this.panel.curve, (t) => this.seek(t));
      this.listen();
      const first = data.runs.find((run) => run.label === options.algorithm) || data.runs[0];
      this.load(first.label, first.repetition);
      if (data.live) this.seek(this.timeline.end);
    }

    acts() {
      return {
        algorithm: (label) => this.load(label, this.timeline.run.repetition),
        repetition: (value) => this.load(this.timeline.run.label, Number(value)),
        follow: (value) => this.followOnly(value),
        speed: (value) => this.setSpeed(value),
        play: () => this.toggle(),
        back: () => this.step(-1),
        forth: () => this.step(1),
        before: () => this.jump(-1),
        next: () => this.jump(1),
        slide: (share) => this.seek(share * this.timeline.end),
      };
    }

    // -- which run -----------------------------------------------------------------------------------------------------

    load(label, repetition) {
      const same = this.data.runs.filter((run) => run.label === label);
      const run = same.find((it) => it.repetition === repetition) || same[0];
      this.pause();
      this.timeline = R.timeline(run, this.data.network.nodes, this.data.incidents);
      this.timeline.names = this.data.network.names;
      this.t = 0;
      this.i = this.lastBy(0);
      this.stepping = false;
      this.follow = { node: -1, walk: -1 };
      this.panel.run.value = label;
      R.fillSelect(this.panel.repetition, [["", same.map((it) => [it.repetition, String(it.repetition)])]], run.repetition);
      this.panel.repetitionBox.hidden = same.length < 2;
      this.fillFollow();
      this.fillSpeeds();
      const incidents = this.timeline.incidents.length > 0;
      this.panel.before.hidden = this.panel.next.hidden = !incidents;
      this.panel.big.hidden = false;
      this.panel.legend.replaceChildren(...R.legendOf(this.timeline));
      this.panel.note.textContent = this.note();
      this.told = R.told(this.timeline, this.follow);
      this.fit();
    }

    note() {
      const { run, e } = this.timeline, { network } = this.data;
      const count = Object.values(run.counts).reduce((a, b) => a + b, 0);
      const parts = [`The trace has ${R.whole(count)} events; ${e.n === count ? "all are here" : `${R.whole(e.n)} are shown`}.`];
      parts.push(...run.left_out);
      if (network.pairs.length < network.edges)
        parts.push(`Of ${R.whole(network.edges)} edges ${R.whole(network.pairs.length)} are drawn.`);
      if (this.data.clock === "virtual") parts.push("Time is virtual: what the simulator counts, not what it took.");
      return parts.join(" ");
    }

    fillFollow() {
      const { nodes, sites, names } = this.data.network;
      const name = (v) => R.called(names, v, "Node") + (sites ? `, ${sites.names[sites.of[v]]}` : "");
      const walks = [...this.timeline.walks.keys()].sort((a, b) => a - b);
      R.fillSelect(this.panel.follow, [
        ["", [["", "Everybody"]]],
        ...(walks.length ? [["Walks", walks.map((w) => [`walk ${w}`, `Walk ${w}`])]] : []),
        ["Nodes", Array.from({ length: nodes }, (_, v) => [`node ${v}`, name(v)])],
      ], "");
    }

    fillSpeeds() {
      const unit = this.timeline.pace / SECONDS_A_TRAINING;
      this.speeds = [...R.SPEEDS.map((s) => [String(s), s * unit, `${s}×`]), ["whole", this.timeline.end / WHOLE, "whole run in a minute"]];
      R.fillSelect(this.panel.speed, [["", this.speeds.map(([value, , text]) => [value, text])]], "1");
      this.setSpeed("1");
    }

    // A study that still runs has more to show: what is watched goes on, if it is still there.
    update(data) {
      const { label, repetition } = this.timeline.run, { t, playing, follow } = this;
      const before = this.data.runs.find((run) => run.label === label && run.repetition === repetition);
      this.data = { network: this.options.network, ...data };
      const now = data.runs.find((run) => run.label === label && run.repetition === repetition);
      R.fillRuns(this.panel, data);
      if (now && before && now.events.count === before.events.count && now.end === before.end) return;
      const latest = data.live && t >= this.timeline.end; // who watches the latest goes on watching it
      this.load(label, repetition);
      this.seek(t);
      if (follow.node >= 0) this.followOnly(`node ${follow.node}`);
      if (playing || latest) this.play();
    }

    // -- how it looks ----------------------------------------------------------------------------------------------------

    fit() {
      this.scene.resize();
      const dark = document.documentElement.dataset.theme === "dark";
      this.colour = window.Walktalk.dom.colourOf(this.timeline.run);
      const palette = dark ? this.data.walk_colours_dark : this.data.walk_colours;
      this.scene.show(this.timeline, (walk) => palette[(walk - 1) % palette.length], this.colour);
      this.panel.root.style.setProperty("--wr-run", this.colour);
      this.strip.show(this.timeline, this.scene.ink, this.colour);
      this.curve.show(this.timeline, this.scene.ink, this.colour);
      this.draw(true);
    }

    draw(words) {
      const { panel, timeline, t, i } = this, now = performance.now();
      this.scene.draw({ t, i, speed: this.speed, stepping: this.stepping, calm: this.motion.matches, ...this.follow });
      if (!words && now - (this.saidAt || 0) < TEXT_TICK) return;
      this.saidAt = now;
      panel.slider.value = t / Math.max(timeline.end, 1e-12);
      panel.slider.setAttribute("aria-valuetext", `${R.seconds(t, timeline.end)} of ${R.seconds(timeline.end, timeline.end)}`);
      this.curve.move(t);
      if (this.options.onTime) this.options.onTime({ label: timeline.run.label, repetition: timeline.run.repetition, time: t });
      R.fillFacts(panel.facts, this.facts());
      this.fillTicker();
      this.fillStory();
    }

    facts() {
      const { timeline, i, t } = this, { loss, accuracy } = this.curve.at(t);
      const done = R.last(timeline.trained, i, (it) => it.i);
      const facts = [
        [this.data.clock === "virtual" ? "Virtual time" : "Time", `${R.seconds(t, timeline.end)}`],
        ["Iteration", done >= 0 ? R.whole(timeline.trained[done].iteration) : "0"],
        ["Event", `${R.whole(i + 1)} of ${R.whole(timeline.e.n)}`],
        ["Loss", window.Walktalk.format.plain(loss)],
      ];
      if (accuracy !== null) facts.push(["Accuracy", `${window.Walktalk.format.plain(accuracy * 100)} %`]);
      if (!timeline.run.left_out.length) facts.push(["Sent", R.bytes(timeline.sent[i + 1])]);
      return facts;
    }

    fillTicker() {
      const { timeline, panel } = this;
      const k = R.last(timeline.incidents, this.i, (it) => it.i);
      let text = "";
      if (this.stepping && this.i >= 0) text = R.sentence(timeline, this.data.words, this.i);
      else if (k >= 0 && this.t - timeline.incidents[k].t < TICKER * this.speed) text = this.toldIncident(k);
      if (panel.ticker.textContent === text) return;
      panel.ticker.textContent = text;
      const mark = this.stepping ? this.data.incidents[timeline.e.kinds[timeline.e.kind[this.i]]] : k >= 0 && timeline.incidents[k].mark;
      panel.ticker.dataset.mark = mark || "";
    }

    // Of several at the same time the one that counts most: a death before what its neighbours think of it.
    toldIncident(k) {
      const { incidents } = this.timeline, at = incidents[k].t;
      let best = k;
      for (let j = k; j >= 0 && at - incidents[j].t < TICKER * this.speed * 0.4; j--)
        if (weight(incidents[j]) > weight(incidents[best])) best = j;
      return R.sentence(this.timeline, this.data.words, incidents[best].i);
    }

    fillStory() {
      const { panel, timeline, follow } = this, places = R.lastTold(this.told, this.i);
      const key = `${timeline.run.label} ${timeline.run.repetition} ${follow.node} ${follow.walk} ${places[0]}`;
      if (key === this.storyOf) return;
      if (panel.story.contains(document.activeElement) && this.playing) return; // somebody is about to press one
      this.storyOf = key;
      const { sites, names } = this.data.network;
      const place = follow.node >= 0 && sites ? ` at ${sites.names[sites.of[follow.node]]}` : "";
      panel.storyTitle.textContent = follow.node >= 0 ? `${R.called(names, follow.node, "Node")}${place}` : follow.walk > 0 ? `Walk ${follow.walk}` : "What happens";
      panel.storyState.textContent = this.state();
      R.fillStory(panel.story, timeline, this.data.words, places, (i) => this.seekEvent(i));
    }

    state() {
      const { timeline, follow, i } = this;
      if (follow.walk > 0) {
        const stations = timeline.walks.get(follow.walk);
        const station = stations[Math.max(0, R.last(stations, i, (s) => s.i))];
        const hops = stations.filter((s) => s.flying && s.i <= i).length;
        const where = station.gone ? "lost" : station.flying ? `on its way to ${R.called(timeline.names, station.flight.to)}` : `at ${R.called(timeline.names, station.node)}`;
        return `Is ${where} after ${R.whole(hops)} ${hops === 1 ? "hop" : "hops"}.`;
      }
      if (follow.node < 0) return "Click a node or a walk, or choose one above, for its story.";
      const state = R.stateOf(timeline, follow.node, i);
      const done = timeline.trainings.filter((it) => it.node === follow.node && it.j <= i && !it.died).length;
      const words = [state === R.DEAD ? "dead" : state === R.PAUSED ? "hangs" : "alive"];
      if (state !== R.DEAD && R.aggregatorAt(timeline, this.t) === follow.node) words.push("aggregates");
      return `Is ${words.join(", ")}; has trained ${R.whole(done)} times.`.replace("Is hangs", "Hangs");
    }

    // -- the clock ---------------------------------------------------------------------------------------------------------

    lastBy(t) {
      const { time, n } = this.timeline.e;
      let low = 0, high = n;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (time[middle] <= t) low = middle + 1;
        else high = middle;
      }
      return low - 1;
    }

    toggle() {
      if (this.playing) this.pause();
      else this.play();
    }

    play() {
      if (this.playing) return;
      if (this.t >= this.timeline.end) this.t = 0;
      this.playing = true;
      this.stepping = false;
      this.panel.big.hidden = true;
      this.panel.play.replaceChildren(R.icon("pause"));
      this.panel.play.setAttribute("aria-label", "Pause");
      this.panel.root.classList.add("wr-playing");
      this.before = performance.now();
      this.frames = [];
      this.request = requestAnimationFrame((now) => this.frame(now));
    }

    pause() {
      if (!this.playing) return;
      this.playing = false;
      cancelAnimationFrame(this.request);
      this.panel.play.replaceChildren(R.icon("play"));
      this.panel.play.setAttribute("aria-label", "Play");
      this.panel.root.classList.remove("wr-playing");
      this.draw(true);
    }

    frame(now) {
      if (!this.playing) return;
      this.request = requestAnimationFrame((next) => this.frame(next));
      if (this.motion.matches && now - this.before < CALM_TICK) return;
      this.frames.push(now);
      if (this.frames.length > 120) this.frames.shift();
      const passed = Math.min((now - this.before) / 1000, this.motion.matches ? 1 : 0.25); // a tab that slept goes on from where it was
      this.before = now;
      this.t = this.intoScene(Math.min(this.t + passed * this.speed, this.timeline.end));
      this.i = this.lastBy(this.t);
      if (this.t >= this.timeline.end) this.pause();
      else this.draw(this.motion.matches);
    }

    // Between two scenes nothing is shown: on to the next one.
    intoScene(t) {
      const { scenes } = this.timeline.run;
      const next = scenes.find(([, to]) => t <= to + this.speed * 0.5);
      return next && t < next[0] ? next[0] : t;
    }

    setSpeed(value) {
      const found = this.speeds.find(([name]) => name === String(value));
      if (!found) return;
      this.speed = Math.max(found[1], 1e-12);
      this.panel.speed.value = found[0];
      this.panel.pace.textContent = `1 s shows ${window.Walktalk.format.onAxis("time", this.speed)}`;
    }

    faster(by) {
      const at = this.speeds.findIndex(([name]) => name === this.panel.speed.value);
      this.setSpeed(this.speeds[Math.max(0, Math.min(this.speeds.length - 1, at + by))][0]);
    }

    seek(t) {
      this.t = Math.max(0, Math.min(t, this.timeline.end));
      this.i = this.lastBy(this.t);
      this.stepping = false;
      this.panel.big.hidden = true;
      this.draw(true);
    }

    seekEvent(i) {
      this.pause();
      this.panel.big.hidden = true;
      this.i = Math.max(-1, Math.min(i, this.timeline.e.n - 1));
      this.t = this.i >= 0 ? this.timeline.e.time[this.i] : 0;
      this.stepping = true;
      this.draw(true);
    }

    step(by) {
      this.pause();
      this.seekEvent(this.stepping || by > 0 ? this.i + by : this.i);
    }

    jump(by) {
      const { incidents } = this.timeline;
      const k = R.last(incidents, this.i, (it) => it.i);
      const here = k >= 0 && incidents[k].i === this.i && this.stepping;
      const to = incidents[by > 0 ? k + 1 : here ? k - 1 : k];
      if (to) this.seekEvent(to.i);
    }

    // -- whom to follow ------------------------------------------------------------------------------------------------------

    followOnly(value) {
      const [what, number] = value.split(" ");
      this.follow = { node: what === "node" ? Number(number) : -1, walk: what === "walk" ? Number(number) : -1 };
      this.panel.follow.value = value;
      this.told = R.told(this.timeline, this.follow);
      this.storyOf = null;
      this.draw(true);
    }

    clicked(event) {
      const walk = this.scene.walkAt(event.offsetX, event.offsetY);
      const node = this.scene.nodeAt(event.offsetX, event.offsetY);
      this.followOnly(walk > 0 ? `walk ${walk}` : node >= 0 ? `node ${node}` : "");
    }

    hovered(event) {
      const over = this.scene.walkAt(event.offsetX, event.offsetY) > 0 || this.scene.nodeAt(event.offsetX, event.offsetY) >= 0;
      this.panel.stage.style.cursor = over ? "pointer" : "";
    }

    // -- what it listens to --------------------------------------------------------------------------------------------------

    listen() {
      const { panel } = this;
      panel.stage.addEventListener("click", (event) => this.clicked(event));
      panel.stage.addEventListener("mousemove", (event) => this.hovered(event));
      panel.marks.addEventListener("click", (event) => this.seek(this.strip.timeAt(event.offsetX)));
      panel.root.addEventListener("keydown", (event) => this.pressed(event));
      document.addEventListener("walktalk-theme", () => { if (panel.stage.clientWidth) this.fit(); }); // not on paper, where it is hidden
      new ResizeObserver(() => {
        const box = panel.stage.getBoundingClientRect();
        if (box.width && (Math.abs(box.width - this.scene.width) > 1 || Math.abs(box.height - this.scene.height) > 1)) this.fit();
      }).observe(panel.stage);
    }

    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
      const slider = event.target === this.panel.slider, button = event.target.matches("button");
      const keys = {
        " ": button ? null : () => this.toggle(), k: () => this.toggle(),
        ArrowLeft: slider ? null : () => this.step(-1), ArrowRight: slider ? null : () => this.step(1),
        "[": () => this.jump(-1), "]": () => this.jump(1), "+": () => this.faster(1), "-": () => this.faster(-1),
        Home: slider ? null : () => this.seek(0), End: slider ? null : () => this.seek(this.timeline.end),
        Escape: () => this.followOnly(""),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    }

    // Pictures a second while it plays.
    fps() {
      const { frames } = this;
      return frames.length < 2 ? 0 : (1000 * (frames.length - 1)) / (frames[frames.length - 1] - frames[0]);
    }

    // How many events of each kind are here, by the trace's names.
    counts() {
      const { e } = this.timeline, found = {};
      for (let i = 0; i < e.n; i++) {
        const name = e.kinds[e.kind[i]].split(".")[0];
        found[name] = (found[name] || 0) + 1;
      }
      return found;
    }
  }

  const weight = (it) => ({ kill: 9, all_lost: 9, partition: 8, elected: 7, revive: 7, heal: 7, restarted: 6, forked: 6, pause: 6 })[it.name] || 1;
})((window.WalktalkReplay = window.WalktalkReplay || {}));

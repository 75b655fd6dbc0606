// The elements around the drawing: which run, the controls, the story of a node or a walk.
(function (R) {
  "use strict";

  const el = (...given) => window.Walktalk.dom.el(...given);
  const ICONS = { // paths in a square of 16
    play: "M4 2.5v11l10-5.5z", pause: "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z", back: "M11.5 3v10L4.5 8z", forth: "M4.5 3v10l7-5z",
    before: "M2.5 3h2v10h-2zM13.5 3v10l-8-5z", next: "M11.5 3h2v10h-2zM2.5 3v10l8-5z",
  };
  R.icon = (name) => window.Walktalk.dom.svg("svg", { viewBox: "0 0 16 16", class: "wr-icon", "aria-hidden": "true" }, window.Walktalk.dom.svg("path", { d: ICONS[name] }));
  R.SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 100];
  const STORY = 12; // events that are told at once
  let mounted = 0; // names of elements must differ if there are two on a page

  // All elements by name; `act` has a function for each control.
  R.panel = function (data, act) {
    const id = (name) => `wr-${name}-${mounted}`;
    mounted++;
    const button = (name, label, key) =>
      el("button", { type: "button", class: `button wr-button wr-${name}`, "aria-label": label, title: `${label} (${key})`, onclick: () => act[name]() }, R.icon(name));
    const select = (name, label, options) => {
      const box = el("select", { id: id(name), onchange: () => act[name](box.value) }, ...options);
      return [el("label", { for: id(name) }, label), box];
    };
    const p = {};
    const [runLabel, run] = select("algorithm", "Algorithm", []);
    const [repetitionLabel, repetition] = select("repetition", "Repetition", []);
    const [followLabel, follow] = select("follow", "Follow", []);
    const [speedLabel, speed] = select("speed", "Speed", []);
    p.run = run;
    R.fillRuns(p, data);
    p.repetition = repetition;
    p.repetitionBox = el("span", { class: "wr-field" }, repetitionLabel, repetition);
    p.follow = follow;
    p.speed = speed;
    p.stage = el("canvas", { class: "wr-stage", role: "img", "aria-label": "The network" });
    p.big = el("button", { type: "button", class: "wr-big", "aria-label": "Play the run", onclick: () => act.play() }, R.icon("play"));
    p.ticker = el("div", { class: "wr-ticker", role: "status" });
    p.curve = el("div", { class: "wr-curve", role: "img", "aria-label": "Training loss against time" });
    p.marks = el("canvas", { class: "wr-marks", "aria-hidden": "true" });
    p.slider = el("input", {
      type: "range", class: "wr-slider", min: 0, max: 1, step: "any", value: 0, "aria-label": "Time",
      oninput: () => act.slide(Number(p.slider.value)),
    });
    p.play = button("play", "Play", "space");
    p.back = button("back", "One event back", "left arrow");
    p.forth = button("forth", "One event on", "right arrow");
    p.before = button("before", "Incident before", "[");
    p.next = button("next", "Next incident", "]");
    p.facts = el("dl", { class: "wr-facts" });
    p.pace = el("span", { class: "wr-pace" });
    p.storyTitle = el("h3", {});
    p.storyState = el("p", { class: "wr-state" });
    p.story = el("ol", { class: "wr-story" });
    p.legend = el("p", { class: "wr-legend" });
    p.note = el("p", { class: "wr-note" });
    p.root = el(
      "div", { class: "wr", role: "group", "aria-label": "Replay of a run" },
      el("div", { class: "wr-bar" }, el("span", { class: "wr-field" }, runLabel, run), p.repetitionBox, el("span", { class: "wr-field" }, followLabel, follow), p.facts),
      el("div", { class: "wr-body" },
        el("div", { class: "wr-main" },
          el("div", { class: "wr-frame" }, p.stage, p.big, p.ticker),
          el("div", { class: "wr-time" }, p.marks, p.slider),
          el("div", { class: "wr-bar wr-controls" },
            el("div", { class: "wr-buttons" }, p.before, p.back, p.play, p.forth, p.next),
            el("span", { class: "wr-field" }, speedLabel, speed), p.pace)),
        el("div", { class: "wr-side" }, el("h3", {}, "Training loss"), p.curve, el("div", { class: "wr-told" }, p.storyTitle, p.storyState, p.story))),
      p.legend, p.note,
    );
    return p;
  };

  R.fillSelect = function (select, groups, chosen) {
    select.replaceChildren(
      ...groups.map(([name, options]) => {
        const inner = options.map(([value, text]) => el("option", { value }, text));
        return name ? el("optgroup", { label: name }, ...inner) : inner;
      }).flat(),
    );
    select.value = chosen;
  };

  R.fillRuns = function (panel, data) {
    const labels = [...new Map(data.runs.map((run) => [run.label, run.title])).entries()];
    R.fillSelect(panel.run, [["", labels]], panel.run.value || labels[0][0]);
  };

  R.fillFacts = function (list, facts) {
    if (list.children.length !== facts.length)
      list.replaceChildren(...facts.map(([name]) => el("div", {}, el("dt", {}, name), el("dd", {}))));
    facts.forEach(([, value], k) => {
      const cell = list.children[k].lastChild;
      if (cell.textContent !== value) cell.textContent = value;
    });
  };

  // The last events of a node, a walk, or of everybody, newest first.
  R.fillStory = function (list, timeline, words, places, seek) {
    list.replaceChildren(
      ...places.map((i) => {
        const time = el("time", {}, R.seconds(timeline.e.time[i], timeline.end));
        const text = R.sentence(timeline, words, i);
        return el("li", {}, el("button", { type: "button", onclick: () => seek(i) }, time, " ", text));
      }),
    );
  };

  // Which events are told: those of whoever is followed; of nobody in particular, what a person would look at.
  R.told = function (timeline, follow) {
    const { e } = timeline, found = [];
    const plain = e.kinds.map((name) => /^(record|combine\.copy|combine\.update|encode|decode|counted|saved)|\.control$/.test(name));
    for (let i = 0; i < e.n; i++) {
      if (follow.node >= 0 ? e.node[i] === follow.node || (e.peer[i] === follow.node && e.link[i] < 0 && !plain[e.kind[i]]) :
        follow.walk > 0 ? e.walk[i] === follow.walk : true)
        if (!plain[e.kind[i]]) found.push(i);
    }
    return found;
  };

  R.lastTold = function (told, i) {
    const k = R.last(told, i, (place) => place);
    return told.slice(Math.max(0, k + 1 - STORY), k + 1).reverse();
  };

  R.legendOf = function (timeline) {
    const entries = [["train", "trains"]];
    if (timeline.walks.size) entries.push(["walk", "a walk, by its number"]);
    if (timeline.run.aggregators.length) entries.push(["aggregator", "aggregates"]);
    if (timeline.flights.some((f) => f.model && f.walk <= 0)) entries.push(["model", "a model on its way"]);
    if (timeline.flights.some((f) => !f.model)) entries.push(["control", "a message without a model"]);
    if (timeline.mixes.length) entries.push(["mix", "mixes models"]);
    if (timeline.flights.some((f) => f.lost)) entries.push(["lost", "a message lost"]);
    if (timeline.nodes.some((states) => states.some((s) => s.state === R.DEAD))) entries.push(["dead", "dead"]);
    if (timeline.cuts.length) entries.push(["cut", "cut off"]);
    return entries.map(([name, text]) => el("span", {}, el("i", { class: `wr-key wr-key-${name}`, "aria-hidden": "true" }), text));
  };
})((window.WalktalkReplay = window.WalktalkReplay || {}));

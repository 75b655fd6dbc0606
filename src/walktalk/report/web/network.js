/* The network with its sites, and who holds which data. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { el, svg } = window.Walktalk.dom;
  const NUMBERED = 60; // nodes that are few enough to carry their number
  const FEW = 30; // nodes that are still apart in a smaller drawing
  const WIDTH = 560;
  const NARROW = 340; // on a telephone, where numbers would be too small to read otherwise
  const HOW = { away: "does not answer", bad: "complains", gone: "left for good" };
  const LETTER = 6.6; // the width of one, as drawings have them

  function network(root, data) {
    const { places, pairs, nodes } = data;
    if (!places) {
      root.replaceChildren(el("p", { class: "note" }, `${data.name}: ${nodes.toLocaleString("en-US")} nodes, too many to be drawn.`));
      return;
    }
    const whole = nodes <= FEW && window.innerWidth < 640 ? NARROW : WIDTH;
    const longest = Math.max(0, ...(data.names || []).map((name) => name.length));
    const room = Math.max(data.sites ? 46 : 22, longest > 3 ? Math.max(36, 3.6 * longest) : 0); // names stand out at the rim
    const highest = Math.max(...places.map(([, y]) => y), 0.02);
    const widest = Math.max(...places.map(([x]) => x), 0.02);
    const span = (whole - 2 * room) / Math.max(widest, 0.6);
    const height = highest * span + 2 * room;
    const shift = (whole - widest * span) / 2;
    const at = (node) => [shift + places[node][0] * span, height - room - places[node][1] * span];
    const size = nodes <= NUMBERED ? 11 : Math.max(2, 90 / Math.sqrt(nodes));
    const above = longest > 3; // all of them, where one is too long for its node
    const called = (node) => (above ? [data.names[node], -16, "beside"] : [data.names ? data.names[node] : String(node), 3.6, null]);
    const states = data.states || [], down = new Set(data.down || []);
    const path = (chosen) => chosen.map(([a, b]) => `M${at(a).map(short)}L${at(b).map(short)}`).join("");
    const lines = svg("g", {}, svg("path", { class: "edges", d: path(pairs.filter((_, place) => !down.has(place))) }),
      svg("path", { class: "edges down", d: path(pairs.filter((_, place) => down.has(place))) }));
    const near = svg("path", { class: "edges near" });
    const neighbours = new Map();
    pairs.forEach(([a, b]) => { neighbours.set(a, [...(neighbours.get(a) || []), b]); neighbours.set(b, [...(neighbours.get(b) || []), a]); });
    const drawn = places.map((_, node) => {
      const [x, y] = at(node);
      const shape = node === data.aggregator
        ? svg("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: 3 })
        : svg("circle", { cx: x, cy: y, r: size });
      const group = svg("g", { class: `node ${node === data.aggregator ? "aggregator" : ""} ${states[node] || ""}` }, svg("title", {}, about(node)), shape);
      if (nodes <= NUMBERED) {
        const [name, below, where] = called(node);
        group.append(svg("text", { x, y: y + below, class: where }, name));
      }
      const [from, peers] = [at(node).map(short), neighbours.get(node) || []];
      const light = () => near.setAttribute("d", peers.map((peer) => `M${from}L${at(peer).map(short)}`).join(""));
      group.addEventListener("pointerenter", () => { light(); told.textContent = about(node); });
      group.addEventListener("pointerleave", () => { near.setAttribute("d", ""); told.textContent = usual; });
      return group;
    });
    function about(node) {
      const parts = [data.names ? data.names[node] : `Node ${node}`];
      if (node === data.aggregator) parts.push("the aggregator, where walks are mixed");
      if (data.sites) parts.push(`at ${data.sites.names[data.sites.of[node]]}`);
      parts.push(`${data.degrees[node]} neighbours`);
      if (HOW[states[node]]) parts.push(HOW[states[node]]);
      if (data.samples) parts.push(`${data.samples[node].toLocaleString("en-US")} samples`);
      return parts.join(", ");
    }
    const away = states.filter((state) => state === "away").length;
    const usual = `${nodes.toLocaleString("en-US")} nodes, ${data.edges.toLocaleString("en-US")} edges` +
      (data.shown < data.edges ? ` (${data.shown.toLocaleString("en-US")} drawn)` : "") + (data.notes.length ? `; ${data.notes.join("; ")}` : "") + "." +
      (away ? ` Hollow: ${away === 1 ? "one that does" : `${away} that do`} not answer.` : "") + (down.size ? ` Dashed: ${down.size === 1 ? "a connection that is" : `${down.size} connections that are`} down.` : "") +
      (data.aggregator !== null && data.aggregator !== undefined ? ` The square is the aggregator, ${data.names ? data.names[data.aggregator] : `node ${data.aggregator}`}.` : "");
    const told = el("figcaption", {}, usual);
    const title = `The network: ${usual}`;
    const picture = svg("svg", { viewBox: `0 0 ${whole} ${Math.round(height)}`, role: "img", "aria-label": title },
      sitesOf(data, at, size), lines, near, ...drawn);
    bounded(picture, whole);
    root.replaceChildren(el("figure", {}, picture, told));
  }

  // So wide that letters are no larger than those of the page: where there is little to draw, it does not fill a panel.
  const bounded = (picture, width) => { picture.style.maxWidth = `${Math.round(1.3 * width)}px`; };

  const short = (value) => value.toFixed(1);

  function sitesOf(data, at, size) {
    const group = svg("g", { class: "sites" });
    if (!data.sites) return group;
    data.sites.names.forEach((name, site) => {
      const members = data.sites.of.flatMap((of, node) => (of === site ? [at(node)] : []));
      if (!members.length) return;
      const pad = size + 9;
      const [xs, ys] = [members.map(([x]) => x), members.map(([, y]) => y)];
      const [left, top] = [Math.min(...xs) - pad, Math.min(...ys) - pad];
      const [right, bottom] = [Math.max(...xs) + pad, Math.max(...ys) + pad];
      group.append(svg("rect", { x: left, y: top, width: right - left, height: bottom - top, rx: 12 }));
      group.append(svg("text", { x: (left + right) / 2, y: top - 6 }, name));
    });
    return group;
  }

  /* A bubble per node and class; its area is the number of samples. */
  function partition(root, data) {
    const { counts, classes, nodes } = data;
    const largest = Math.max(...counts.flat(), 1);
    const called = data.names ? counts.map((_, node) => data.names[node]) : [];
    const longest = LETTER * Math.max(0, ...called.map((name) => name.length)) + 8;
    const fair = (window.innerWidth < 640 ? 290 : 520) / counts.length;
    const named = called.length > 0 && longest <= fair; // else there is only room for numbers
    const cell = Math.max(7, Math.min(named ? Math.max(36, longest) : 36, fair));
    const row = Math.max(14, Math.min(24, 360 / classes.length));
    const left = 12 + LETTER * Math.max(...classes.map((name) => name.length));
    const [width, height] = [left + counts.length * cell + 8, classes.length * row + 34];
    const most = Math.min(cell, row) / 2 - 0.5;
    const bubbles = counts.flatMap((held, node) => held.map((count, kind) => (count === 0 ? null : svg("circle",
      { cx: left + (node + 0.5) * cell, cy: (kind + 0.5) * row, r: Math.max(0.8, most * Math.sqrt(count / largest)).toFixed(2), "data-at": `${data.names ? data.names[node] : `Node ${node}`}, class ${classes[kind]}: ${count.toLocaleString("en-US")} samples` }))));
    const names = classes.map((name, kind) => svg("text", { x: left - 6, y: (kind + 0.5) * row + 4, class: "end" }, name));
    const every = named ? 1 : Math.ceil(26 / cell) * (counts.length > 60 ? 2 : 1);
    const numbers = counts.flatMap((_, node) => (node % every ? [] : [svg("text", { x: left + (node + 0.5) * cell, y: height - 18 }, named ? called[node] : String(node))]));
    const cut = counts.length < nodes ? ` The first ${counts.length} of ${nodes.toLocaleString("en-US")} nodes.` : "";
    const alike = data.alpha === null || data.alpha === undefined ? "" : ` Split with α = ${data.alpha}; the smaller, the more the nodes' data differ.`;
    const usual = `Who holds what: a column per node, a row per class, the area the number of samples, ${largest.toLocaleString("en-US")} at most.${alike}${cut}`;
    const told = el("figcaption", {}, usual);
    const picture = svg("svg", { viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`, role: "img", "aria-label": usual, class: "partition" },
      ...bubbles.filter(Boolean), ...names, ...numbers, svg("text", { x: left + (counts.length * cell) / 2, y: height - 2, class: "title" }, "Node"));
    bounded(picture, width);
    picture.addEventListener("pointermove", (event) => { told.textContent = event.target.dataset.at || usual; });
    picture.addEventListener("pointerleave", () => { told.textContent = usual; });
    root.replaceChildren(el("figure", {}, picture, told));
  }

  window.Walktalk.network = network;
  window.Walktalk.partition = partition;
})();

/* What the chart shows as a file: a drawing (SVG, PNG), or its numbers (CSV). Always on white, as for a paper. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { el, svg } = window.Walktalk.dom;
  const { unitOf, plain, brief } = window.Walktalk.format;
  const [WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM] = [900, 500, 74, 16, 18, 56]; // of the drawing and its margins
  const ROW = 20; // pixels of a row of names
  const LETTER = 6.9; // the width of one of 12 pixels
  const SHARP = 2; // pixels of a PNG for each of the drawing
  const FONT = "Inter, Helvetica, Arial, sans-serif";

  function drawing(curves) {
    const { scaleX, scaleY, limits } = curves, [from, to] = curves.state.range || curves.whole;
    const unit = unitOf(curves.state.axis, curves.whole[1]);
    const along = (scale, low, high, size) => (v) => (size * (scale.fwd(v) - scale.fwd(low))) / (scale.fwd(high) - scale.fwd(low));
    const [w, h] = [WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
    const [right, up] = [along(scaleX, from, to, w), along(scaleY, limits[0], limits[1], h)];
    const X = (v) => LEFT + right(v), Y = (v) => TOP + h - up(v);
    const word = (x, y, text, more) => svg("text", { x: x.toFixed(1), y: y.toFixed(1), fill: "#444", "font-size": 12, ...more }, text);
    const xs = curves.ticks("x", from / unit.size, to / unit.size, w).map((tick) => tick * unit.size);
    const ys = curves.ticks("y", limits[0], limits[1], h);
    const rule = (x1, y1, x2, y2) => svg("line", { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1), stroke: "#ddd" });
    const grid = [
      ...xs.flatMap((x) => [rule(X(x), TOP, X(x), TOP + h), word(X(x), TOP + h + 18, plain(x / unit.size), { "text-anchor": "middle" })]),
      ...ys.flatMap((y) => [rule(LEFT, Y(y), LEFT + w, Y(y)), word(LEFT - 8, Y(y) + 4, brief(y), { "text-anchor": "end" })]),
      word(LEFT + w / 2, TOP + h + 42, curves.axis.name + (unit.name ? ` (${unit.name})` : ""), { "text-anchor": "middle", "font-weight": 600 }),
      word(16, TOP + h / 2, curves.metric.name + (curves.metric.unit ? ` (${curves.metric.unit})` : ""), { "text-anchor": "middle", "font-weight": 600, transform: `rotate(-90 16 ${TOP + h / 2})` }),
    ];
    const inside = svg("g", { "clip-path": "url(#inside)" }, ...curves.drawn.flatMap((line) => strokes(line, X, Y, curves)));
    const [names, rows] = legend(curves.shown);
    const high = HEIGHT + rows * ROW + 8;
    return svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${WIDTH} ${high}`, width: WIDTH, height: high, "font-family": FONT },
      svg("clipPath", { id: "inside" }, svg("rect", { x: LEFT, y: TOP, width: w, height: h })),
      svg("rect", { width: WIDTH, height: high, fill: "#fff" }), ...grid, inside, ...names);
  }

  function strokes(line, X, Y, curves) {
    const usable = (x, y) => y !== null && Number.isFinite(X(x)) && Number.isFinite(Y(y)) && !(curves.logY && y <= 0);
    const points = (ys) => line.x.map((x, k) => (usable(x, ys[k]) ? `${X(x).toFixed(1)},${Y(ys[k]).toFixed(1)}` : null));
    const path = (ys) => points(ys).map((point, k, all) => (point === null ? "" : `${k && all[k - 1] !== null ? "L" : "M"}${point}`)).join("");
    const { colour, dash } = line.algorithm;
    const band = line.upper ? [...points(line.upper), ...points(line.lower).reverse()].filter(Boolean) : [];
    const found = band.length ? [svg("polygon", { points: band.join(" "), fill: colour, "fill-opacity": 0.17 })] : [];
    if (line.smoothed) found.push(svg("path", { d: path(line.y), fill: "none", stroke: colour, "stroke-width": line.width, "stroke-opacity": 0.25 }));
    found.push(svg("path", { d: path(line.smoothed || line.y), fill: "none", stroke: colour, "stroke-width": line.width, "stroke-linejoin": "round", "stroke-dasharray": dash.join(" ") || null }));
    return found;
  }

  function legend(algorithms) {
    let [x, row] = [LEFT, 0];
    const found = algorithms.flatMap(({ name, colour, dash }) => {
      const wide = 40 + LETTER * name.length;
      if (x > LEFT && x + wide > WIDTH - RIGHT) { x = LEFT; row += 1; }
      const [at, y] = [x, HEIGHT + row * ROW + 6];
      x += wide;
      return [svg("line", { x1: at, x2: at + 20, y1: y, y2: y, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") || null }),
        svg("text", { x: at + 26, y: y + 4, fill: "#222", "font-size": 12 }, name)];
    });
    return [found, algorithms.length ? row + 1 : 0];
  }

  /* A row for each point that is shown, all of them in the units of history.csv (seconds, bits; shares in percent). */
  function table(curves) {
    const { axis, metric, state } = curves, [from, to] = state.range || curves.whole;
    const runs = state.mode === "runs", smoothed = state.smoothing > 0;
    const head = ["algorithm", ...(runs ? ["repetition"] : []), axis.key, metric.key + (metric.unit === "%" ? "_percent" : ""), ...(runs ? [] : ["std"]), ...(smoothed ? ["smoothed"] : [])];
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const rows = curves.drawn.flatMap((line) => line.x.flatMap((x, k) => (x < from || x > to || line.y[k] === null ? [] : [[
      quoted(line.algorithm.label), ...(runs ? [line.repetition] : []), x, line.y[k], ...(runs ? [] : [line.std[k] ?? ""]), ...(smoothed ? [line.smoothed[k]] : []),
    ]])));
    return [head, ...rows].map((row) => row.join(",")).join("\n") + "\n";
  }

  function save(content, type, name) {
    const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  async function picture(text) {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = el("canvas", { width: SHARP * image.width, height: SHARP * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => { canvas.toBlob(done, "image/png"); });
  }

  async function saved(curves, kind) {
    const name = `${curves.data.name}-${curves.metric.key}-${curves.axis.key}.${kind}`.replace(/[^\w.-]+/g, "-");
    if (kind === "csv") return save(table(curves), "text/csv", name);
    const text = new XMLSerializer().serializeToString(drawing(curves));
    return kind === "svg" ? save(text, "image/svg+xml", name) : save(await picture(text), "image/png", name);
  }

  window.Walktalk.saving = { saved, drawing, table };
})();

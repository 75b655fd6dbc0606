/* What is drawn over the curves: failures, and where the replay is. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { colourOf, token } = window.Walktalk.dom;
  const { at } = window.Walktalk.series;
  const APART = 90; // pixels between two labels

  const faultsOf = (data, algorithm) => ((data.incidents || {})[algorithm.label] || []).filter((one) => one.fault);
  const any = (curves) => curves.shown.some((algorithm) => faultsOf(curves.data, algorithm).length > 0);

  /* Where a moment is on the axis that is shown, by the first repetition. */
  function placeOf(curves, algorithm, time) {
    if (curves.state.axis === "time") return time;
    const run = curves.data.runs[algorithm.label][0];
    return at(run.time, run[curves.state.axis], time);
  }

  function draw(curves, u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.setLineDash([]); // the last curve may have left its own
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (curves.state.axis === "time") times(curves, u);
    for (const algorithm of curves.shown) crosses(curves, u, algorithm);
    if (curves.replayTime > 0 && curves.state.axis === "time") upright(u, curves.replayTime, token("--accent"), 2);
    ctx.restore();
  }

  function upright(u, x, colour, width) {
    const left = u.valToPos(x, "x", true);
    u.ctx.strokeStyle = colour;
    u.ctx.lineWidth = width * devicePixelRatio;
    u.ctx.beginPath();
    u.ctx.moveTo(left, u.bbox.top);
    u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
    return left;
  }

  /* A line and its name at every moment at which something went wrong. */
  function times(curves, u) {
    const told = new Map();
    for (const algorithm of curves.shown) {
      for (const one of faultsOf(curves.data, algorithm)) told.set(one.time, (told.get(one.time) || new Set()).add(one.words));
    }
    let last = -Infinity;
    u.ctx.font = `${11 * devicePixelRatio}px ${token("--font")}`;
    for (const [time, words] of [...told].sort((a, b) => a[0] - b[0])) {
      const left = upright(u, time, token("--line-strong"), 1);
      if (left - last < APART * devicePixelRatio) continue;
      last = left;
      u.ctx.fillStyle = token("--muted");
      const text = words.size === 1 ? [...words][0] : `${words.size} nodes fail`;
      const right = left + u.ctx.measureText(text).width + 10 * devicePixelRatio > u.bbox.left + u.bbox.width;
      u.ctx.textAlign = right ? "right" : "left";
      u.ctx.fillText(text, left + (right ? -5 : 5) * devicePixelRatio, u.bbox.top + 12 * devicePixelRatio);
    }
  }

  function crosses(curves, u, algorithm) {
    const curve = curves.curveOf(algorithm);
    const size = 4.5 * devicePixelRatio;
    for (const one of faultsOf(curves.data, algorithm)) {
      const x = placeOf(curves, algorithm, one.time);
      const y = x === null ? null : at(curve.x, curve.mean, x);
      if (y === null) continue;
      const [left, top] = [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
      for (const [colour, width] of [[token("--surface"), 5], [colourOf(algorithm), 2]]) {
        u.ctx.strokeStyle = colour;
        u.ctx.lineWidth = width * devicePixelRatio;
        u.ctx.beginPath();
        u.ctx.moveTo(left - size, top - size); u.ctx.lineTo(left + size, top + size);
        u.ctx.moveTo(left - size, top + size); u.ctx.lineTo(left + size, top - size);
        u.ctx.stroke();
      }
    }
  }

  window.Walktalk.marks = { draw, any };
})();
